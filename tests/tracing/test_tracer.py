"""Tracing: results match the original module, and untraceable modules are refused with a reason."""

from __future__ import annotations

import collections
import inspect
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import CaptureError, ConfigError, UnsupportedDtypeError, UnsupportedOperatorError
from optimum_neuron.tracing import trace, wait_for_host_code
from tests.raising import raises, refused_operators
from tests.tracing.conftest import FAST, Convolutions


def bert(**options):
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=100, **sizes, **options)).eval()


TOKENS = {"input_ids": torch.arange(16).view(1, 16), "attention_mask": (torch.arange(16) < 9).long().view(1, 16)}


def test_perceptron_is_script_module_with_one_operator(mlp):
    x = torch.rand(5, 12)
    model = trace(mlp, x, compiler_args=FAST)
    assert isinstance(model, torch.jit.ScriptModule)
    assert [str(n.kind()) for n in model.inlined_graph.nodes()].count("neuron::forward") == 1
    torch.testing.assert_close(model(x), mlp(x))
    torch.testing.assert_close(model(x=x + 1), mlp(x + 1))
    assert model(x.requires_grad_()).requires_grad is False


class Scaled(nn.Module):
    def forward(self, x, shifts, scale=None):
        y = x if scale is None else x * scale
        return {"result": y + shifts["first"] - shifts["second"]}


@pytest.mark.parametrize("names", [("shifts", "scale", "x"), ("shifts", "x")], ids=str)
def test_inputs_by_keyword_as_in_torch_jit_trace(names, tmp_path):
    values = {"x": torch.rand(2), "scale": torch.rand(2), "shifts": {"first": torch.rand(2), "second": torch.rand(2)}}
    inputs = {name: values[name] for name in names}
    reference = torch.jit.trace(Scaled(), example_kwarg_inputs=inputs, strict=False)
    model = trace(Scaled(), example_kwarg_inputs=inputs, compiler_args=FAST)
    assert str(model.forward.schema).partition(", ")[2] == str(reference.forward.schema).partition(", ")[2]
    torch.jit.save(model, tmp_path / "scaled.pt")
    for module in (model, torch.jit.load(tmp_path / "scaled.pt")):
        torch.testing.assert_close(module(**inputs), reference(**inputs))


def test_transformers_model_takes_its_inputs_by_keyword():
    model = bert()
    traced = trace(model, example_kwarg_inputs=TOKENS, compiler_args=FAST)
    torch.testing.assert_close(traced(**TOKENS)["logits"], model(**TOKENS).logits)


X = torch.rand(2)


@pytest.mark.parametrize(
    ("inputs", "keywords", "details"),
    [
        ((X, X, X, X), None, {"option": "example_inputs", "error": "too many positional arguments"}),
        (X, None, {"option": "example_inputs", "error": "missing a required argument: 'shifts'"}),
        (None, None, {"option": "example_inputs"}),
        (X, {"x": X, "shifts": {"first": X}}, {"options": ["example_inputs", "example_kwarg_inputs"]}),
        (None, {"x": X, "shfts": {"first": X}}, {"option": "example_kwarg_inputs", "unknown": ["shfts"]}),
        (None, {"x": X}, {"option": "example_kwarg_inputs", "error": "missing a required argument: 'shifts'"}),
        (None, [X], {"option": "example_kwarg_inputs", "type": "list"}),
        (None, {0: X}, {"option": "example_kwarg_inputs", "type": "dict"}),
    ],
)
def test_wrong_example_inputs_are_refused(inputs, keywords, details):
    with raises(ConfigError, **details):
        trace(Scaled(), inputs, example_kwarg_inputs=keywords, compiler_args=FAST)


class Holding(nn.Module):
    """Computes with a constant, and returns another as it is."""

    def __init__(self, constant, *, persistent):
        super().__init__()
        self.register_buffer("constant", constant, persistent=persistent)
        self.register_buffer("other", constant.clone())

    def forward(self, x):
        return x * 2 + self.constant.float(), self.other


UNSIGNED = [(torch.uint16, "-O1"), (torch.uint32, "-O1"), (torch.uint64, "-O1"), (torch.uint16, "-O2")]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("dtype", "flags"), UNSIGNED, ids=str)
def test_unsigned_constants(dtype, flags, persistent):
    module, x = Holding(torch.arange(4).to(dtype), persistent=persistent), torch.rand(4)
    model = trace(module, x, compiler_args=flags)
    assert wait_for_host_code(model)
    for result, expected in zip(model(x), module(x), strict=True):
        assert result.dtype == expected.dtype and torch.equal(result, expected)


class Keeping(Holding):
    def forward(self, x):
        return x * 2, self.constant


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float8_e8m0fnu, torch.float8_e5m2fnuz, "qint8"], ids=str)
def test_unserializable_constants_are_refused_by_name(dtype, persistent):
    ones = torch.ones(4)
    constant = torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8) if dtype == "qint8" else ones.to(dtype)
    with pytest.raises(UnsupportedDtypeError) as excinfo:
        trace(Keeping(constant, persistent=persistent), ones, compiler_args=FAST)
    assert str(dtype).removeprefix("torch.") in excinfo.value.details["dtypes"].values()


@pytest.mark.parametrize("flags", ["-O1", "-O2"])
def test_network_for_images(flags):
    network, image = Convolutions(), torch.rand(2, 1, 12, 12)
    torch.testing.assert_close(trace(network, image, compiler_args=flags)(image), network(image))


def test_transformer_with_equal_layers_and_dictionary_of_outputs():
    model = bert()
    traced_model = trace(model, tuple(TOKENS.values()), compiler_args=FAST)
    outputs = traced_model(*TOKENS.values())
    assert isinstance(outputs, dict) and list(outputs) == ["logits"]
    torch.testing.assert_close(outputs["logits"], model(**TOKENS).logits)


def test_outputs_of_every_layer_are_returned():
    model = bert(output_hidden_states=True, return_dict=False)
    logits, hidden = trace(model, tuple(TOKENS.values()), compiler_args=FAST)(*TOKENS.values())
    expected = model(**TOKENS)
    assert len(hidden) == len(expected[1]) == 6
    for result, target in zip((logits, *hidden), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(result, target)


class MeanOfLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x):
        results = []
        for layer in self.layers:
            x = layer(x).tanh()
            results.append(x)
        return torch.stack(results).mean(0)


def test_output_from_every_layer_is_correct():
    model, x = MeanOfLayers(), torch.rand(2, 4)
    torch.testing.assert_close(trace(model, x, compiler_args=FAST)(x), model(x))


def test_function_keeps_closure_tensors(mlp):
    factor, x = torch.rand(4), torch.rand(5, 12)
    torch.testing.assert_close(trace(lambda x: mlp(x) * factor, x, compiler_args=FAST)(x), mlp(x) * factor)


Pair = collections.namedtuple("Pair", ["left", "right"])


class Nested(nn.Module):
    def forward(self, first, others, named):
        (a, b), [c, d] = others
        return (first + a, [b * c, named["x"] - d]), Pair(first, {"y": named["y"]})


def test_nested_structures_are_preserved():
    one = torch.ones(2)
    inputs = (one, ((one, one + 1), [one + 2, one]), {"x": one, "y": one - 1})
    (total, listed), pair = trace(Nested(), inputs, compiler_args=FAST)(*inputs)
    assert total.tolist() == [2, 2] and isinstance(listed, list)
    assert [tensor[0].item() for tensor in listed] == [6, 0]
    assert pair[0].tolist() == [1, 1] and pair[1]["y"].tolist() == [0, 0]


def test_unsupported_torchscript_structures_are_refused():
    with pytest.raises(RuntimeError, match="consistent element type"):
        trace(lambda parts: parts[0], ([torch.ones(2), (torch.ones(2),)],), compiler_args=FAST)


def test_outputs_never_share_memory_with_inputs_or_weights(mlp):
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x, x.view(3, 1), self.weight * 1, self.weight

    x = torch.zeros(3)
    model = trace(Passes(), x, compiler_args=FAST)
    for output in model(x):
        output.add_(7)
    assert x.tolist() == [0, 0, 0]
    assert model(x)[3].tolist() == [1, 1, 1]


def test_neff_in_work_folder_records_choices(mlp, tmp_path):
    trace(mlp, torch.rand(5, 12), compiler_workdir=tmp_path / "work", compiler_args=["--target", "trn1", "-O1"])
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["graph.neff"]
    with open_neff(tmp_path / "work" / "graph.neff") as neff:
        assert (neff.document.name, neff.document.target) == ("Mlp", "trn1")
        assert neff.metadata["weights"] == [f"fc{i}.{kind}" for i in (1, 2, 3) for kind in ("weight", "bias")]
        assert neff.metadata["optlevel"] == "1" and "weights.safetensors" in neff.names


def test_fine_tuned_model_finds_its_program_in_cache(mlp, monkeypatch, tmp_path):
    from optimum_neuron.compiler.cache import CompileCache

    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path))
    for _ in range(2):
        trace(nn.Linear(3, 2), torch.rand(1, 3), compiler_args=FAST)
    assert CompileCache().status()["num_entries"] == 1


def test_auto_cast_rounds_operands():
    layer, x = nn.Linear(64, 8, bias=False), torch.rand(2, 64)
    cast = trace(layer, x, compiler_args="--auto-cast matmult --auto-cast-type bf16 -O1")(x)
    expected = x.bfloat16().float() @ layer.weight.bfloat16().float().T
    torch.testing.assert_close(cast, expected)
    assert (cast - layer(x)).abs().max() > 1e-5


@pytest.mark.parametrize(
    ("more", "flags", "message"),
    [(({},), "-O1", "1 more arguments are ignored"), ((), "--model-type transformer -O1", "--model-type transformer")],
)
def test_ignored_arguments_are_reported_once_at_the_caller(mlp, more, flags, message):
    with pytest.warns(UserWarning, match=message) as records:
        trace(mlp, torch.rand(5, 12), *more, compiler_args=flags)
    assert len(records) == 1 and Path(records[0].filename) == Path(__file__)


def test_cpu_backend_compiles_without_core(mlp, monkeypatch):
    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime import held_cores

    x = torch.rand(5, 12)
    with raises(ConfigError, option="cpu_backend"):
        trace(mlp, x, cpu_backend=True)
    before = len(held_cores(INSTANCES["inf2.xlarge"]))
    model = trace(mlp, x, cpu_backend=True, compiler_args="--target inf2 -O1")
    assert len(held_cores(INSTANCES["inf2.xlarge"])) == before
    torch.testing.assert_close(model(x), mlp(x))
    assert len(held_cores(INSTANCES["inf2.xlarge"])) == before + 1


def test_cpu_backend_compiles_for_another_generation(mlp, monkeypatch, tmp_path):
    x, path = torch.rand(5, 12), tmp_path / "trn2.pt"
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    model = trace(mlp, x, cpu_backend=True, compiler_args="--target trn2 -O1", compiler_workdir=tmp_path)
    assert open_neff(tmp_path / "graph.neff").document.target == "trn2"
    torch.jit.save(model, path)
    for use in (lambda: model(x), lambda: torch.jit.load(path)):
        with pytest.raises(RuntimeError, match="TargetMismatchError"):
            use()
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2")
    torch.testing.assert_close(model(x), mlp(x))
    torch.testing.assert_close(torch.jit.load(path)(x), mlp(x))


def test_weight_may_be_nan():
    layer, x = nn.Linear(3, 2), torch.rand(4, 3)
    layer.weight.data[0, 0] = float("nan")
    torch.testing.assert_close(trace(layer, x, compiler_args=FAST)(x), layer(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2])
def test_dtypes_missing_in_numpy(dtype, tmp_path):
    module, x = Holding(torch.arange(4).to(dtype), persistent=False), torch.rand(3, 4)
    torch.jit.save(trace(module, x, compiler_args=FAST), tmp_path / "holding.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "holding.pt")(x), module(x))


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Sorts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"sorting": Sorting()})

    def forward(self, x):
        return self.inner["sorting"](x) + torch.linalg.qr(x)[0]


class Sorting(nn.Module):
    def forward(self, x):
        return torch.sort(x)[0]


def test_data_dependent_control_flow_and_sizes_are_refused():
    line = inspect.getsourcelines(Branches.forward)[1] + 1
    with raises(CaptureError, source_line=f"{__file__}:{line}: return x if x.sum() > 0 else -x"):
        trace(Branches(), torch.rand(3), compiler_args=FAST)
    with raises(UnsupportedOperatorError) as error:
        trace(lambda x: torch.nonzero(x).float() * 2, torch.rand(3), compiler_args=FAST)
    assert refused_operators(error)["aten.nonzero"] == "NCC_EMOD025"
    assert "test_tracer.py:" in str(error.value.details["operators"])


def test_unsupported_operators_are_all_named_with_module_line_and_code():
    with raises(UnsupportedOperatorError) as error:
        trace(Sorts(), torch.rand(3, 3), compiler_args=FAST)
    refused = refused_operators(error)
    assert refused["aten.sort"] == "NCC_EVRF001" and "aten.linalg_qr" in refused
    text = str(error.value.details["operators"])
    assert "inner.sorting" in text and "test_tracer.py:" in text and "L__self__" not in text


@pytest.mark.parametrize(
    ("inputs", "options", "details"),
    [
        ((torch.rand(5, 12), 3), {}, {"types": {"example_inputs.1": "int"}}),
        ((None,), {}, {"types": {"example_inputs.0": "NoneType"}}),
        (torch.rand(5, 12), {"compiler_args": "--optlvel 1"}, {"option": "compiler_args", "flags": ["--optlvel", "1"]}),
        (torch.rand(5, 12), {"compiler_args": "--target trn9"}, {"name": "trn9"}),
        (torch.rand(5, 12), {"compiler_args": "--target inf1"}, {"target": "inf1"}),
        (torch.rand(5, 12), {"compiler_args": "--target trn2"}, {"target": "trn2", "instance": "inf2.xlarge"}),
        (torch.rand(5, 12), {"compiler_args": "--lnc 2"}, {"code": "NCC_EARG001", "lnc": 2}),
        (
            torch.rand(5, 12),
            {"compiler_args": "--target trn2 --lnc 1", "cpu_backend": True},
            {"option": "--lnc", "lnc": 1, "default": 2},
        ),
    ],
)
def test_untraceable_modules_are_refused(mlp, inputs, options, details):
    with raises(ConfigError, **details):
        trace(mlp, inputs, **options)


def test_invalid_function_output_and_rounding_are_refused(mlp):
    with raises(ConfigError, option="func", type="Tensor"):
        trace(torch.rand(2), torch.rand(2))
    with raises(ConfigError, types={"output.1": "int"}):
        trace(lambda x: (x, 3), torch.rand(2), compiler_args=FAST)
    with pytest.raises(UnsupportedDtypeError):
        trace(mlp, torch.rand(5, 12), compiler_args="--auto-cast all --auto-cast-type fp8_e4m3")


def test_wrong_input_is_refused_by_name(mlp):
    model = trace(mlp, torch.rand(5, 12), compiler_args=FAST)
    for x, result in ((torch.rand(3, 12), r"float32\[3, 12\]"), (torch.zeros(5, 12).long(), r"int64\[5, 12\]")):
        with pytest.raises(RuntimeError, match=rf"ShapeError.*x is {result}, compiled for float32\[5, 12\]"):
            model(x)


def test_tracing_emits_no_warnings(mlp):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(mlp, torch.rand(5, 12), compiler_args=FAST)


def test_compiler_flags_of_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("NEURON_CC_FLAGS", f"--auto-cast=all --cache_dir={tmp_path / 'cache'} -O1")
    traced_model = trace(torch.nn.Linear(4, 2), torch.rand(1, 4), compiler_workdir=tmp_path / "work")
    assert open_neff(tmp_path / "work" / "graph.neff").metadata["auto_cast"] == "all"
    assert any((tmp_path / "cache").iterdir()) and traced_model(torch.rand(1, 4)).shape == (1, 2)
    monkeypatch.setenv("NEURON_CC_FLAGS", f"--cache_dir={tmp_path / 'unused'} --no_cache -O1")
    trace(torch.nn.Linear(4, 3), torch.rand(1, 4))
    assert not (tmp_path / "unused").exists()


def texts(x):
    y = x * 2
    return y * len(f"{y.sum().item()}")


def formats(x):
    y = x * 2
    return y * len(f"{y.sum():.0f}")


def checks_types(x):
    y = x * 2
    return y * (2 if isinstance(y.sum().item(), float) else 3)


def checks_types_of_many(x):
    y = x * 2
    return y * sum(isinstance(value, float) for value in y.tolist())


def catches_decisions(x):
    try:
        return x * (2 if x.sum() > 0 else 3)
    except RuntimeError:
        return x


def catches_numbers(x):
    try:
        return x * int(x.sum().item())
    except Exception:
        return x


def ignores(x):
    y = x * 2
    y.sum().item()
    return y


@pytest.mark.parametrize(
    "function",
    [texts, formats, checks_types, checks_types_of_many, catches_numbers, ignores],
    ids=lambda function: function.__name__,
)
def test_numbers_that_the_graph_does_not_use_are_errors_with_their_line(function):
    with pytest.raises(CaptureError) as excinfo:
        trace(function, torch.rand(3), compiler_args=FAST)
    place = f"{__file__}:{inspect.getsourcelines(function)[1] + 2}: "
    assert excinfo.value.details["source_line"].startswith(place) and place in str(excinfo.value)


def test_decision_whose_error_is_caught_is_an_error_with_its_line():
    line = inspect.getsourcelines(catches_decisions)[1] + 2
    with raises(UnsupportedOperatorError) as error:
        trace(catches_decisions, torch.rand(3), compiler_args=FAST)
    assert f"test_tracer.py:{line}" in str(error.value.details["operators"])


def test_sizes_may_be_numbers_and_tensors_may_be_printed():
    def function(x):
        assert f"{x.shape[0]} {len(x)}" == "3 3" and isinstance(x.numel(), int)
        print(x.mean())
        return x * x.size(0)

    x = torch.rand(3)
    torch.testing.assert_close(trace(function, x, compiler_args=FAST)(x), x * 3)
