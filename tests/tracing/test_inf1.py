"""Traced models of Inf1 against eager PyTorch: segments, places of operators, pipelines, and errors of bad input."""

from __future__ import annotations

import dataclasses
import logging
import subprocess

import pytest
import torch
from torch import nn

from optimum_neuron.errors import (
    ConfigError,
    DeviceMemoryError,
    NoFallbackError,
    NothingCompiledError,
    TargetMismatchError,
    UnsupportedDtypeError,
)
from optimum_neuron.hardware import TARGETS
from optimum_neuron.tracing import DataParallel, inf1, set_neuron_cores, wait_for_host_code
from optimum_neuron.tracing.inf1.graph import read_graph
from optimum_neuron.tracing.inf1.segments import Limits, Plan
from optimum_neuron.tracing.script import neuron_models, session_of

CLOSE = {"rtol": 2e-2, "atol": 2e-2}
"""bfloat16 has 8 bits of precision."""


pytestmark = pytest.mark.usefixtures("inf1_machine")


def segments(model: torch.jit.ScriptModule) -> int:
    return len(neuron_models(model))


def cores(model: torch.jit.ScriptModule) -> list[tuple[int, ...]]:
    return [session_of(part).core_ids for part in neuron_models(model)]


class SortInTheMiddle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.table = nn.Linear(8, 8), nn.Linear(8, 8), nn.Embedding(5, 8)
        self.eval()

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        ordered = torch.sort(torch.relu(self.first(x) + 1))[0]
        return {"states": torch.tanh(self.last(ordered) + self.table(ids)).reshape(ordered.size(0), -1)}


def test_an_operator_of_the_cpu_makes_two_segments(tmp_path):
    model, inputs = SortInTheMiddle(), (torch.rand(2, 8), torch.tensor([1, 2]))
    traced = inf1.trace(model, inputs, strict=False)
    assert segments(traced) == 2
    torch.testing.assert_close(traced(*inputs)["states"], model(*inputs)["states"], **CLOSE)
    torch.jit.save(traced, tmp_path / "model.pt")
    again = torch.jit.load(tmp_path / "model.pt")
    assert torch.equal(again(*inputs)["states"], traced(*inputs)["states"])
    traced.close()


def test_float32_is_bfloat16_everywhere_unless_fast_math_is_none():
    x = torch.rand(64) + 1
    fast = inf1.trace(lambda x: x * 3.0 + 1, x)
    exact = inf1.trace(lambda x: x * 3.0 + 1, x, compiler_args=["--fast-math", "none"])
    assert not torch.equal(fast(x), x * 3 + 1)
    assert torch.equal(fast(x), fast(x).bfloat16().float())
    assert torch.equal(exact(x), x * 3 + 1)


@pytest.mark.parametrize(
    ("arguments", "is_exact"), [(None, True), ("--enable-saturate-infinity", True), ("--fast-math all", False)]
)
@pytest.mark.filterwarnings("ignore:neuron-cc flags without an effect")
def test_compiler_args_come_before_the_environment(monkeypatch, arguments, is_exact):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1 --auto-cast none")
    x = torch.rand(64) + 1
    assert torch.equal(inf1.trace(lambda x: x * 3.0 + 1, x, compiler_args=arguments)(x), x * 3 + 1) is is_exact
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1 --auto-cast all --auto-cast-type tf32")
    with pytest.raises(UnsupportedDtypeError):
        inf1.trace(lambda x: x * 3.0 + 1, x, debug_must_trace=True)


def test_log_has_the_counts_of_operators(caplog):
    caplog.set_level(logging.INFO, "Neuron")
    inf1.trace(SortInTheMiddle(), (torch.rand(2, 8), torch.tensor([1, 2])), strict=False)
    assert "before = 9, fused = 7, percent fused = 77.78%" in caplog.text
    assert " => aten::sort: 1 [not supported]" in caplog.text
    assert " => aten::linear: 2" in caplog.text


def test_analyze_model_compiles_nothing(monkeypatch):
    monkeypatch.setattr("optimum_neuron.tracing.inf1.tracer.compile_segments", None)
    report = inf1.analyze_model(SortInTheMiddle(), (torch.rand(2, 8), torch.tensor([1, 2])), strict=False)
    assert report["unsupported_operators"] == {"aten::embedding": 1, "aten::sort": 1}
    assert (report["num_supported_arithmetic"], report["num_arithmetic"]) == (7, 9)


def test_embedding_runs_on_the_core_when_it_is_asked_for():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids))

    model, ids = Lookup(), torch.tensor([[1, 8, 3]])
    whitelist = [*inf1.get_supported_operations(), "aten::embedding"]
    # AWS compiles embeddings so too: src/examples/pytorch/transformers-marianmt.ipynb passes fallback=False.
    for options, on_cpu in (({}, True), ({"op_whitelist": whitelist}, False), ({"fallback": False}, False)):
        traced = inf1.trace(model, ids, **options)
        assert ("cpu_part" in str(traced.inlined_graph) or "aten::embedding" in str(traced.inlined_graph)) is on_cpu
        torch.testing.assert_close(traced(ids), model(ids), **CLOSE)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x) + 1


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 100


def test_builder_function_sees_class_names_and_decides(caplog):
    caplog.set_level(logging.INFO, "Neuron")
    model, x = Scaled(), torch.rand(1, 1, 5, 5)
    traced = inf1.trace(model, x, subgraph_builder_function=lambda node: "Layer" in node.name)
    assert " => aten::_convolution: 1" in caplog.text
    assert " => aten::mul: 1 [supported]" in caplog.text
    torch.testing.assert_close(traced(x), model(x), rtol=2e-2, atol=2)


def test_writes_in_place_keep_their_order():
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 2
            view = y.view(-1)
            ordered = torch.sort(view)[0]
            y.add_(1)
            return view + ordered, torch.relu_(y - 3)

    x = torch.rand(2, 3)
    traced = inf1.trace(InPlace(), x)
    for mine, theirs in zip(traced(x), InPlace()(x), strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_a_segment_does_not_write_to_the_caller():
    traced, x = inf1.trace(lambda x: x.add_(1) * 2 + 1, torch.zeros(4)), torch.zeros(4)
    assert torch.equal(traced(x), torch.full((4,), 3.0))
    assert torch.equal(x, torch.ones(4))  # as torch does


def test_dynamic_batches_and_data_parallel():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    traced = inf1.trace(net, torch.rand(1, 4), dynamic_batch_size=True)
    x = torch.rand(7, 4)
    torch.testing.assert_close(traced(x), net(x), **CLOSE)
    parallel = DataParallel(traced)
    assert parallel.num_workers == 8
    torch.testing.assert_close(parallel(x), net(x), **CLOSE)
    fixed = inf1.trace(net, torch.rand(2, 4))
    with pytest.raises(RuntimeError):
        fixed(torch.rand(3, 4))


def deep(width: int = 8, depth: int = 4) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))).eval()


@pytest.mark.parametrize("effort", ["-O1", pytest.param("-O2", marks=pytest.mark.full(days=7))])
def test_pipelines_of_1_2_and_4_cores_are_bitwise_equal(monkeypatch, effort):
    monkeypatch.setenv("NEURON_CC_FLAGS", effort)
    model, x = deep(), torch.rand(2, 8)
    results = []
    for count in (1, 2, 4):
        traced = inf1.trace(model, x, compiler_args=["--neuroncore-pipeline-cores", str(count)])
        assert wait_for_host_code(traced)
        assert [len(ids) for ids in cores(traced)] == [count]
        results.append(traced(x))
        traced.close()
    assert all(torch.equal(results[0], other) for other in results)
    torch.testing.assert_close(results[0], model(x), **CLOSE)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_layers_that_torch_fuses_for_inference_are_divided():
    model, x = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval(),
        torch.rand(2, 5, 16),
    )
    results = []
    for count in (1, 2):
        traced = inf1.trace(model, x, compiler_args=["--neuroncore-pipeline-cores", count])
        assert "_transformer_encoder_layer_fwd" not in str(traced.inlined_graph)
        results.append(traced(x))
    assert torch.equal(*results)
    torch.testing.assert_close(results[0], model(x), **CLOSE)


def test_log_says_when_weights_exceed_the_cores_of_a_pipeline(caplog, monkeypatch):
    monkeypatch.setattr("optimum_neuron.tracing.inf1.log.WEIGHTS_OF_PIPELINE_CORE", 100)
    for width, exceeds in ((4, False), (16, True)):
        caplog.clear()
        inf1.trace(deep(width), torch.rand(2, width), compiler_args="--neuroncore-pipeline-cores 2").close()
        assert ("read from DRAM" in caplog.text) is exceeds


def test_replicas_of_a_pipeline_take_cores_in_a_row():
    traced = inf1.trace(deep(), torch.rand(2, 8), compiler_args="--neuroncore-pipeline-cores 2")
    set_neuron_cores(traced, 0, 4)
    traced(torch.rand(2, 8))
    assert cores(traced) == [(0, 1, 2, 3)]
    set_neuron_cores(traced, 0, 3)
    with pytest.warns(UserWarning, match="takes 2 cores, so some of the 3 cores stay empty"):
        traced(torch.rand(2, 8))
    assert cores(traced) == [(0, 1)]
    with pytest.raises(ConfigError) as error:
        DataParallel(traced)
    assert error.value.details["num_cores"] == 2


def test_groups_of_cores_take_models_in_turn(monkeypatch):
    monkeypatch.setenv("NEURONCORE_GROUP_SIZES", "2,2")
    models = [inf1.trace(deep(), torch.rand(2, 8), compiler_args=f"--neuroncore-pipeline-cores {n}") for n in (2, 2, 1)]
    assert [cores(model) for model in models] == [[(0, 1)], [(2, 3)], [(0,)]]
    with pytest.warns(UserWarning, match="spans groups"):
        inf1.trace(deep(), torch.rand(2, 8), compiler_args="--neuroncore-pipeline-cores 3")


def test_half_precision_takes_both_dtypes():
    model, x = deep(), torch.rand(2, 8)
    traced = inf1.trace(model, x, optimizations=[inf1.Optimization.FLOAT32_TO_FLOAT16])
    assert traced(x).dtype == torch.float16
    assert torch.equal(traced(x), traced(x.half()))
    torch.testing.assert_close(traced(x).float(), model(x), **CLOSE)


def test_a_module_with_a_traced_child_is_traced():
    model, x = Scaled(), torch.rand(1, 1, 5, 5)
    expected = model(x)
    model.layer = inf1.trace(model.layer, x)
    traced = inf1.trace(model, x, minimum_segment_size=1)
    assert segments(traced) == 2
    torch.testing.assert_close(traced(x), expected, rtol=2e-2, atol=2)


def plan_of(function, *inputs: torch.Tensor, **limits: float) -> Plan:
    program = read_graph(torch.jit.trace(function, inputs, check_trace=False))
    allowed = Limits(supports=lambda one: one.kind != "aten::sort", chosen=lambda one: True, **limits)
    return Plan(program, allowed)


def test_an_operator_beside_the_path_does_not_split_a_segment():
    plan = plan_of(lambda x, y: torch.relu(x * 2) + torch.sort(y)[0], torch.rand(3), torch.rand(3))
    assert [len(segment) for segment in plan.segments] == [3]


class SizesOfTheCore(nn.Module):
    """As BERT of transformers: the CPU makes a mask from the size of what a core has made."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(5, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = torch.tanh(self.first(self.table(ids)))
        mask = torch.linspace(0.0, 1.0, states.size(2))
        return self.last(states) + mask


def test_sizes_of_what_a_core_makes_do_not_split_a_segment(tmp_path):
    model, ids = SizesOfTheCore(), torch.tensor([[1, 2, 3], [4, 0, 1]])
    traced = inf1.trace(model, ids)
    assert segments(traced) == 1
    torch.jit.save(traced, tmp_path / "model.pt")
    for one in (traced, torch.jit.load(tmp_path / "model.pt")):
        torch.testing.assert_close(one(ids), model(ids), **CLOSE)


def test_small_segments_and_those_beside_the_largest_run_on_the_cpu():
    def function(x):
        return torch.relu(torch.sort(torch.relu(x))[0] * 2 + 1) * 3 - x

    assert [len(s) for s in plan_of(function, torch.rand(3), single_fusion_ratio_threshold=1.0).segments] == [5]
    both = plan_of(function, torch.rand(3), single_fusion_ratio_threshold=1.0, minimum_segment_size=1)
    assert [len(segment) for segment in both.segments] == [1, 5]
    assert [len(s) for s in plan_of(function, torch.rand(3), minimum_segment_size=1).segments] == [5]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fallback": False}, NoFallbackError),
        ({"op_whitelist": ["aten::sort"]}, ConfigError),
        ({"op_whitelist": ["aten::reluu"]}, ConfigError),
        ({"op_whitelist": "aten::relu"}, ConfigError),
        ({"op_whitelist": 3}, ConfigError),
        ({"op_whitelist": [3]}, ConfigError),
        ({"op_whitelists": ["aten::relu"]}, ConfigError),
        ({"compiler_args": "--fast-math fp32-cast-all-tf32"}, ConfigError),
        ({"compiler_args": "--auto-cast matmult"}, ConfigError),
        ({"compiler_args": ["--neuroncore-pipeline-cores", "5"]}, ConfigError),
        ({"minimum_segment_size": 99}, NothingCompiledError),
        ({"subgraph_builder_function": lambda node: False}, NothingCompiledError),
        ({"compiler_timeout": 1e-9}, subprocess.TimeoutExpired),
        ({"compiler_timeout": 0}, ConfigError),
        ({"compiler_timeout": "long"}, ConfigError),
        ({"compiler_workdir": __file__}, ConfigError),
        ({"compiler_args": 3}, ConfigError),
        ({"compiler_args": "--fast-math all none"}, ConfigError),
        ({"minimum_segment_size": -1}, ConfigError),
        ({"minimum_segment_size": "2"}, ConfigError),
        ({"op_whitelist": []}, NothingCompiledError),
        ({"optimizations": ["float32_to_float16"]}, ConfigError),
        ({"single_fusion_ratio_threshold": 2}, ConfigError),
        ({"subgraph_builder_function": "Linear"}, ConfigError),
    ],
)
def test_bad_arguments_are_one_error(arguments, error):
    with pytest.raises(error):
        inf1.trace(lambda x: torch.sort(torch.relu(x) + 1)[0], torch.rand(4), **arguments)


@pytest.mark.parametrize(
    ("model", "dtype", "arguments", "reason"),
    [
        (nn.Identity(), torch.float32, {}, "none that compute"),
        (lambda x: torch.sort(x)[0], torch.float32, {}, "lacks aten::sort"),
        (lambda x: x * 2 + 1, torch.float32, {"op_whitelist": ["aten::relu"]}, "leaves out aten::mul, aten::add"),
        (lambda x: x * 2 + 1, torch.float64, {}, "cannot be compiled"),
        (lambda x: x * 2 + 1, torch.float32, {"minimum_segment_size": 99}, "fewer than 99"),
        (lambda x: x * 2 + 1, torch.float32, {"subgraph_builder_function": lambda node: False}, "leaves all of them"),
    ],
)
def test_a_model_without_a_segment_has_its_reason(model, dtype, arguments, reason):
    with pytest.raises(NothingCompiledError) as error:
        inf1.trace(model, torch.rand(4, dtype=dtype), **arguments)
    assert reason in error.value.message


def test_a_pipeline_needs_as_many_cores_of_the_process(monkeypatch):
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    with pytest.raises(ConfigError) as error:
        inf1.trace(deep(), torch.rand(2, 8), compiler_args="--neuroncore-pipeline-cores 4")
    assert error.value.details["num_cores"] == 2


@torch.jit.script
def scaled_sigmoid(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * torch.sigmoid(scale * x)


@torch.jit.script
def by_its_sign(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if bool(x.sum() > 0) else x


def test_functions_that_torchscript_compiled_are_inlined():
    x = torch.rand(2, 3)
    traced = inf1.trace(lambda x: scaled_sigmoid(x + 1, 1.7), x)
    assert segments(traced) == 1
    torch.testing.assert_close(traced(x), scaled_sigmoid(x + 1, 1.7), **CLOSE)
    for model in (lambda x: by_its_sign(x), by_its_sign):
        with pytest.raises(ConfigError) as error:
            inf1.trace(model, x)
        assert error.value.details["kind"] == "prim::If"
    with pytest.raises(ConfigError):
        inf1.trace("bert", x)


def test_arguments_without_an_effect_are_logged(caplog):
    caplog.set_level(logging.INFO)
    inf1.trace(nn.Linear(4, 2), torch.rand(1, 4), minimum_segment_size=1, verbose=1, subgraph_inputs_pruning=False)
    assert "verbose=1 changes nothing" in caplog.text and "subgraph_inputs_pruning=False" in caplog.text


@pytest.mark.parametrize("cores", [1, 4])
def test_a_model_over_the_memory_of_a_chip_is_refused_before_its_neff_is_written(monkeypatch, tmp_path, cores):
    small = dataclasses.replace(TARGETS["inf1"], chip=dataclasses.replace(TARGETS["inf1"].chip, hbm_bytes=2**28))
    monkeypatch.setattr("optimum_neuron.tracing.inf1.compile.TARGETS", {"inf1": small})
    model = nn.Sequential(*(nn.Linear(6000, 6000) for _ in range(4)))  # 69 MiB each in 16 bits
    with pytest.raises(DeviceMemoryError) as error:
        flags = f"--neuroncore-pipeline-cores {cores}"
        inf1.trace(model, torch.rand(1, 6000), compiler_args=flags, compiler_workdir=tmp_path)
    assert error.value.details["available"] == 2**28 < error.value.details["total"]
    assert list(tmp_path.rglob("*.neff")) == []
    assert "torch_neuronx" in error.value.hint


def test_segments_count_together_before_one_of_them_is_written(monkeypatch, tmp_path):
    small = dataclasses.replace(TARGETS["inf1"], chip=dataclasses.replace(TARGETS["inf1"].chip, hbm_bytes=2**28))
    monkeypatch.setattr("optimum_neuron.tracing.inf1.compile.TARGETS", {"inf1": small})

    class Sorted(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[1](torch.sort(self[0](x))[0])

    model = Sorted(nn.Linear(5000, 5000), nn.Linear(5000, 5000))  # 48 MiB each in 16 bits, and 96 MiB of microcode
    with pytest.raises(DeviceMemoryError) as error:
        inf1.trace(model, torch.rand(1, 5000), compiler_workdir=tmp_path)
    details = error.value.details
    assert details["weights"] + details["code"] > 2**28 - 2**20 and details["code"] == 2 * 96 * 2**20
    assert list(tmp_path.iterdir()) == []
    inf1.trace(model[0], torch.rand(1, 5000), compiler_workdir=tmp_path).close()


def test_errors_have_the_classes_of_torch_neuron():
    assert issubclass(NoFallbackError, AttributeError)
    assert issubclass(NothingCompiledError, RuntimeError)
    with pytest.raises(NothingCompiledError):
        inf1.trace(lambda x: torch.sort(x)[0], torch.rand(4))
    with pytest.raises(ConfigError):
        inf1.trace(nn.ReLU(), {"x": torch.rand(4)})


def test_artifacts_of_another_generation_are_refused(monkeypatch, tmp_path):
    torch.jit.save(inf1.trace(deep(), torch.rand(2, 8)), tmp_path / "inf1.pt")
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    with pytest.raises(ConfigError) as error:
        inf1.trace(deep(), torch.rand(2, 8))
    assert error.value.details == {"target": "inf1", "instance": "inf2.xlarge"}
    with pytest.raises(RuntimeError, match=TargetMismatchError.__name__):  # TorchScript keeps no classes
        torch.jit.load(tmp_path / "inf1.pt")
