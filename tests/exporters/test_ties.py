"""Mixtures whose routers are nearly tied pass with the experts that rounding chose; wrong routers do not."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.artifact import load as artifact_load
from optimum_neuron.errors import ValidationError
from optimum_neuron.exporters.validation import statistics
from tests.models.mixtures import DEEPSEEK, QWEN
from tests.tiny import save_tiny

ties = importlib.import_module("optimum_neuron.exporters.validation.ties")

MIXTURES = {"mixtral": {}, "qwen3_moe": QWEN, "deepseek_v3": DEEPSEEK}
SHAPES = {"batch_size": 2, "sequence_length": 24, "prefill_buckets": (16,), "decode_buckets": (24,), "extend_length": 1}


def exported(folder, model_type, seed, **options):
    save_tiny(folder, model_type, seed=seed, **MIXTURES[model_type])
    options = {"torch_dtype": "bfloat16", "optlevel": "1", **SHAPES, **options}
    return NeuronModelForCausalLM.from_pretrained(folder, export=True, **options)


@pytest.mark.full(days=2)
@pytest.mark.parametrize("model_type", ["mixtral", "qwen3_moe"])
def test_near_ties_pass_and_are_reported(model_type, tmp_path, monkeypatch):
    model = exported(tmp_path / "tied", model_type, 2)
    rows = [error for error in model.prepared.validation if error.ties]
    assert rows and all(error.ok and 1 <= error.ties < 10 for error in rows)
    assert all(0 <= error.tie_margin <= ties.LARGEST_MARGIN for error in rows)
    assert [row["ties"] for row in model.describe()["validation"]] == [row.ties for row in model.prepared.validation]
    # Without the rule, it would not pass: the test compares what it says.
    monkeypatch.setattr(ties, "LARGEST_MARGIN", -1.0)
    with pytest.raises(ValidationError):
        exported(tmp_path / "again", model_type, 2, disable_neuron_cache=True)


@pytest.mark.full(days=4)
@pytest.mark.parametrize(
    ("model_type", "ending", "damage"),
    [
        ("mixtral", "router.weight", lambda weight: weight.roll(1, 0)),
        ("mixtral", "router.weight", lambda weight: weight * 1.5),
        ("qwen3_moe", "router.weight", lambda weight: torch.cat([-weight[:1], weight[1:]])),
        ("deepseek_v3", "router.correction", lambda bias: bias + torch.arange(len(bias)) / 10),
    ],
    ids=["other experts", "other weights", "one expert", "bias of choices"],
)
def test_wrong_routers_do_not_pass(model_type, ending, damage, tmp_path, monkeypatch):
    real = artifact_load.bind_weights

    def bind(*arguments):
        bound = real(*arguments)
        name = next(name for name in bound.tensors if name.endswith(ending))
        wrong = damage(bound.tensors[name].float()).to(bound.tensors[name].dtype)
        return dataclasses.replace(bound, tensors=bound.tensors | {name: wrong})

    monkeypatch.setattr(artifact_load, "bind_weights", bind)
    monkeypatch.setattr(statistics, "_versions", lambda: {"package": "damaged"})
    with pytest.raises(ValidationError):
        exported(tmp_path, model_type, 2)


class Router(torch.nn.Module):
    """Chooses one of three experts for each row, which is its result."""

    def __init__(self, values):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(values))

    def forward(self):
        return {"expert": torch.topk(self.weight, 1, dim=-1).indices.float()}


def found(values, actual):
    router = Router(values)
    wanted = {"expert": torch.tensor(actual)}
    return ties.other_choices(
        router,
        router,
        torch.bfloat16,
        lambda results: ties.power_of_difference(wanted, results),
        lambda choices: torch.equal(choices.results["expert"], wanted["expert"]),
    )


def test_only_values_within_rounding_are_exchanged():
    near = [[1.0, 1.001, 0.5], [0.1, 0.2, 1.0]]  # bfloat16 rounds 1.001 to 1, a change of 0.001
    choices = found(near, [[0.0], [2.0]])
    assert choices is not None and choices.margins == (pytest.approx(1.0, rel=0.05),)
    assert found(near, [[0.0], [1.0]]) is None, "another row is not tied"
    assert found(near, [[2.0], [2.0]]) is None, "the third expert is not tied"


def test_models_without_routers_have_no_ties():
    assert ties.other_choices(lambda: {}, torch.nn.Linear(1, 1), torch.bfloat16, lambda _: 1.0, lambda _: True) is None
