from __future__ import annotations

import functools
import json
import re

import pytest
import torch

from optimum_neuron import NeuronConfig, check_model
from optimum_neuron.base.core import Choice
from optimum_neuron.checking.migration import MigrationReport
from optimum_neuron.compiler import judged_calls
from optimum_neuron.errors import ConfigError, DeviceMemoryError, ModelError
from optimum_neuron.hardware import TARGETS
from optimum_neuron.kinds import Plan, kind_of
from optimum_neuron.kinds.decoder import DecoderKind
from optimum_neuron.simulator import estimate
from optimum_neuron.sources import ModelSource, architectures_of
from tests.encoders import tiny_encoder_config, tiny_shapes
from tests.programs import Calls, capture_entry, spec
from tests.raising import raises
from tests.tiny import SHAPES, SMALL, tiny_config

GRAPHS, FEW = ({name: value for name, value in shapes.items() if name != "optlevel"} for shapes in (SHAPES, SMALL))
"""Export options that decide the captured graphs: seven graphs, and three."""

CODE = """
import torch
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP


class OddMLP(LlamaMLP):
    def forward(self, x):
        IN_MLP
        return super().forward(x)


class OddForCausalLM(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = OddMLP(config)

    def forward(self, input_ids=None, **kwargs):
        IN_MODEL
        return super().forward(input_ids=input_ids, **kwargs)
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Return a function that writes a Llama with custom code lines, and checks it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))

    def check(name, mlp="pass", model="pass", **options):
        folder = tmp_path / name
        classes = {"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoModelForCausalLM": "odd.OddForCausalLM"}}
        tiny_config("llama", num_hidden_layers=4, **classes).save_pretrained(folder)
        (folder / "odd.py").write_text(CODE.replace("IN_MLP\n", f"{mlp}\n").replace("IN_MODEL\n", f"{model}\n"))
        return check_model(folder, family="generic", trust_remote_code=True, **FEW | options)

    return check


@pytest.fixture(scope="module")
def report(checkpoint):
    return check_model(checkpoint, **GRAPHS)


def place(placeholder):
    """File and line of the code that replaces a placeholder."""
    return f"odd.py:{CODE.splitlines().index(f'        {placeholder}') + 1}"


def operator(report, name):
    (result,) = [operator for operator in report.operators if operator.calls.op == name]
    return result


def test_supported_model_is_drop_in(report):
    assert (report.tier, report.reasons) == (1, ("every operator runs on inf2",))
    assert report.placed_share == 1.0
    assert report.family.value == "llama"
    assert report.failures(["host", "unsupported", "memory"]) == ()


def test_memory_and_graphs_match_export(report, model):
    described = model.describe()
    assert report.memory.to_dict()["hbm_bytes"] == described["hbm_bytes"]
    assert report.memory.fits and report.memory.reason == "fits one core of inf2.xlarge"
    assert [graph.name for graph in report.graphs] == [graph["name"] for graph in described["graphs"]]


@pytest.mark.full(days=2)
def test_flops_match_torch_flop_counter(checkpoint):
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(checkpoint)
    source = ModelSource(name="", folder=checkpoint, config=config, revision=None)
    resolved = NeuronConfig(family="generic", **GRAPHS).resolve(max_position_embeddings=64)
    plan = kind_of(resolved.task, "llama").plan(source, resolved, trust_remote_code=False)
    (captured,) = [one for one in (capture(True) for capture in plan.captures) if one.name == "score_48"]
    calls = judged_calls(captured, TARGETS["inf2"], prefixes=plan.prefixes)
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        original = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        original(torch.ones(2, 48, dtype=torch.int64))
    products = [call for call in calls if call.work.counted == "products"]
    assert sum(call.work.flops for call in products) == counter.get_total_flops()
    assert {call.ruling.module_path for call in products} >= {"lm_head", "model.layers.2.mlp.down_proj"}


@pytest.mark.full(days=2)
def test_repeated_layers_are_counted(odd):
    report = odd("four")
    silu = operator(report, "aten.silu.default")
    assert silu.calls.module_paths == ("model.layers.0-3.mlp.act_fn",)
    assert silu.calls.count == 4 * len(report.graphs)


def test_shares_add_up_to_1_and_report_is_json(report):
    assert sum(row.share for row in report.operators) == pytest.approx(1)
    assert sum(row.flops for row in report.operators) == sum(graph.flops for graph in report.graphs)
    assert sum(row.calls.count for row in report.operators) == sum(graph.num_calls for graph in report.graphs)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["tier"] == {"value": 1, "name": "drop-in", "reasons": ["every operator runs on inf2"]}
    assert {"op", "count", "flops_share", "verdict", "reason", "module_paths", "remedy"} <= set(data["operators"][0])
    assert "<iframe" in (notebook := report._repr_html_()) and data["operators"][0]["op"] in notebook


def test_errors_of_all_graphs_are_reported_together(odd):
    report = odd("sorts", mlp="x = x.sort(dim=-1).values", model="input_ids = input_ids.sort().values")
    assert report.tier == 2
    rows = [row for row in report.operators if row.calls.op == "aten.sort.default"]
    assert sum(row.calls.count for row in rows) == 5 * len(report.graphs)
    (row,) = [row for row in rows if "model.layers.0-3.mlp" in row.calls.module_paths]
    assert row.calls.code == "NCC_EVRF001" and row.host_name == "aten::sort"
    assert "torch.topk" in row.calls.remedy
    assert any(line.endswith(place("IN_MLP")) for line in row.calls.source_lines)
    assert 0.9 < report.placed_share < 1 and all(graph.placed_share < 1 for graph in report.graphs)
    assert report.failures(["unsupported"]) == ("unsupported",)
    assert report.reasons[0].startswith("unsupported: aten.sort.default, ")
    assert report.memory.need is not None
    moved = MigrationReport(before=report, after=report, source=report.target.value, refused_because=None)
    (to_do,) = moved.changes
    assert to_do.endswith("allow_host_ops: aten.sort.default.") and moved.moved == ()


def test_only_allowed_operators_run_on_host(odd):
    report = odd("hosted", mlp="x = x.sort(dim=-1).values", allow_host_ops=["aten::sort"])
    row = operator(report, "aten.sort.default")
    assert (report.tier, row.calls.verdict) == (2, "host")
    assert report.placed_share == pytest.approx(1 - row.share) and report.placed_share < 1
    assert report.failures(["host", "unsupported"]) == ("host",)


def test_data_dependent_control_flow_is_not_expressible(odd):
    condition = "input_ids = input_ids + 1 if (input_ids > 3).all() else input_ids"
    report = odd("branches", model=condition)
    assert (report.tier, report.placed_share, report.graphs, report.family) == (3, None, (), None)
    (failure,) = report.capture_failures
    assert f"{place('IN_MODEL')}: {condition}" in failure.source_line
    assert "torch.where" in failure.reason
    assert report.failures(["unsupported"]) == ("unsupported",)
    assert report.memory.need is None and report.memory.fits is None
    assert report.failures(["memory"]) == ()


@pytest.mark.full(days=2)
def test_capture_error_is_reported_once(odd):
    condition = "input_ids = -input_ids if input_ids.shape[1] > 1 and (input_ids > 3).all() else input_ids"
    report = odd("prompts", model=condition, extend_length=8, **GRAPHS)
    (failure,) = report.capture_failures
    assert failure.graphs == ("prefill_16", "score_16", "prefill_48", "score_48", "extend_8")
    assert [graph.name for graph in report.graphs] == ["decode_20", "decode_48"]
    assert (report.tier, report.placed_share) == (3, None)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("length", [16, 48])
def test_operators_of_smallest_and_largest_graphs_are_checked(odd, length):
    sort = f"input_ids = input_ids.sort().values if input_ids.shape[1] == {length} else input_ids"
    report = odd("ends", model=sort, prefill_buckets=(16, 24, 32, 48))
    assert report.buckets_between == {"prefill_buckets": (24, 32)}
    assert operator(report, "aten.sort.default").calls.count == 2


def test_data_dependent_sizes_are_not_expressible(odd):
    report = odd("sizes", mlp="x.nonzero()")
    assert report.tier == 3 and place("IN_MLP") in report.capture_failures[0].source_line


def test_memory_of_dynamic_graph_is_unknown(checkpoint, monkeypatch):
    entry = functools.partial(capture_entry, Calls(torch.nonzero), name="g", inputs={"x": spec(4)})
    choice = Choice(value="function", reason="for this test")
    plan = Plan(choice=choice, captures=(entry,), weight_sources={}, facts={}, prefixes=())
    monkeypatch.setattr(DecoderKind, "plan", lambda *args, **options: plan)
    report = check_model(checkpoint, **GRAPHS)
    row = operator(report, "aten.nonzero.default")
    assert (report.tier, row.calls.verdict, row.counted) == (2, "unsupported", "unknown")
    assert report.memory.reason == "not known: sizes depend on values"


def test_too_large_model_reports_what_would_fit(checkpoint, tmp_path):
    sizes = {"hidden_size": 16384, "intermediate_size": 57344, "num_attention_heads": 128, "num_hidden_layers": 20}
    tiny_config("llama", **sizes).save_pretrained(tmp_path)
    report = check_model(tmp_path, task="text-generation", **FEW | {"torch_dtype": "bfloat16"})
    assert report.tier == 1 and report.memory.fits is False
    assert report.memory.need.weights > 60 * 2 * 10**9
    reason = report.memory.reason
    instance, degree = re.search(r"instance_type=(\S+) and tensor_parallel_size=(\d+)", reason).groups()
    # The estimate counts the same model otherwise, and finds that it fits there.
    sizes = {"sequence_length": FEW["sequence_length"], "dtype": "bfloat16"}
    assert estimate(tmp_path, instance=instance, tensor_parallel_size=int(degree), **sizes).fit != "does not fit"
    with pytest.raises(DeviceMemoryError):
        estimate(tmp_path, instance="inf2.xlarge", **sizes)
    assert report.failures(["host", "unsupported", "memory"]) == ("memory",)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"optlevel": "2"}, {"options": ["optlevel"]}),
        ({"batchsize": 2}, {"options": ["batchsize"]}),
        ({"allow_host_ops": ["aten::sorted"]}, {"option": "allow_host_ops", "unknown": ["aten::sorted"]}),
    ],
)
def test_unused_options_are_errors(checkpoint, options, expected):
    with raises(ConfigError, **expected):
        check_model(checkpoint, **options)


def test_unknown_conditions_are_errors(report):
    with raises(ConfigError, conditions=["hosts", "hbm"]):
        report.failures(["hosts", "memory", "hbm"])


def test_missing_model_and_unsupported_task_are_errors(checkpoint, tmp_path):
    with raises(ModelError, model=str(tmp_path), reason="empty"):
        check_model(tmp_path)
    with raises(ModelError, task="image-classification"):
        check_model(checkpoint, task="image-classification")


@pytest.mark.parametrize(
    ("model_type", "task", "op", "path"),
    [
        ("bert", "text-classification", "aten.linear.default", "bert.encoder.layer.0-1.output.dense"),
        ("vit", "image-classification", "aten.conv2d.default", "vit.embeddings.patch_embeddings.projection"),
        ("wav2vec2", "automatic-speech-recognition", "aten.linear.default", "lm_head"),
    ],
)
def test_encoder_models(tmp_path, model_type, task, op, path):
    config = tiny_encoder_config(model_type)
    config.architectures = list(architectures_of(task)[model_type][:1])
    config.save_pretrained(tmp_path)
    shapes = {name: value for name, value in tiny_shapes(model_type, task).items() if name != "optlevel"}
    report = check_model(tmp_path, **shapes)
    assert (report.task.value, report.tier, report.placed_share) == (task, 1, 1.0)
    row = operator(report, op)
    assert path in row.calls.module_paths and row.counted == "products" and row.flops > 0
    assert report.memory.fits and report.memory.need.kv_cache == 0
