"""Layers with equal attributes do the same, operator by operator, in every family; None if they cannot be compared."""

from __future__ import annotations

import functools
import importlib

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from optimum_neuron.compiler import fake_parameters, find_stacks, quiet, repeating
from optimum_neuron.kinds.decoder import decoder_captures
from optimum_neuron.models import build_decoder
from optimum_neuron.models.common.layers import layer_kinds
from optimum_neuron.options.configuration import NeuronConfig
from tests.models.mixtures import MIXTURES
from tests.tiny import CONFIGS, FAMILY_CONFIGS, tiny_config

CASES = {model_type: (model_type, {}) for model_type in (*CONFIGS, *FAMILY_CONFIGS)}
CASES |= {name: (model_type, options) for rows in MIXTURES.values() for name, (model_type, options) in rows.items()}
DEEP = {"llama": {"num_hidden_layers": 9}, "gemma2": {"num_hidden_layers": 6}}
PERIODS = {
    "gemma3_text": 3 * ["sliding_attention", "sliding_attention", "full_attention"] + ["sliding_attention"],
    "lfm2": 3 * ["conv", "conv", "full_attention"],
    "qwen3_next": 3 * ["linear_attention", "linear_attention", "full_attention"],
}
"""Types of layers, which repeat."""


def options_of(model_type: str) -> dict[str, object]:
    if model_type in PERIODS:
        return {"layer_types": PERIODS[model_type], "num_hidden_layers": len(PERIODS[model_type])}
    return DEEP.get(model_type, {})


@pytest.mark.full(days=7)
@pytest.mark.parametrize("name", CASES)
def test_equal_attributes_are_equal_computations(name, monkeypatch):
    """The first graph is that of prompts with logits of the last and of all tokens, as it is captured."""
    plan = importlib.import_module("optimum_neuron.kinds.decoder.plan")
    share = plan.prompt_captures
    monkeypatch.setattr(plan, "prompt_captures", lambda *each: share(*each) and [*each])
    model_type, options = CASES[name]
    family = build_decoder(tiny_config(model_type, **{**options, **options_of(model_type)}), dtype="float32")
    kinds = family.module.kinds
    assert kinds is not None and len(kinds) == len(family.module.layers)
    config = NeuronConfig(batch_size=2, sequence_length=16, prefill_buckets=(16,), decode_buckets=(16,))
    module = importlib.import_module("optimum_neuron.compiler.capture")
    for one in decoder_captures(family, config)[::2]:
        (entry,), how = one.args, one.keywords
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        stacks = find_stacks(entry, keep_states=True)
        with fake_parameters(entry, mode), torch.no_grad(), quiet():
            recording = functools.partial(module._recorded, entry, how["inputs"], how["states"], mode)
            (recorded,) = repeating(stacks, recording, keep_states=True)
            (known,) = repeating(stacks, recording, keep_states=True, kinds={"model.layers": kinds})
        expected = (recorded.captured.value, recorded.period, recorded.num_last)
        assert (known.captured.value, known.period, known.num_last) == expected


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.linear = scale, nn.Linear(4, 4)


def test_attributes_configurations_and_shapes_tell_layers_apart():
    assert layer_kinds([Scaled(1), Scaled(1), Scaled(1)], "aab") == (0, 0, 2)
    wide = Scaled(1)
    wide.linear = nn.Linear(4, 5)
    other = Scaled(1)
    other.linear = nn.Sequential(nn.Linear(4, 4))
    assert layer_kinds([Scaled(1), wide, other], "aaa") == (0, 1, 2)
    # Another number may do nothing: what the layers do decides.
    assert layer_kinds([Scaled(1), Scaled(2)], "aa") is None


@pytest.mark.parametrize("change", ["hook", "buffer", "tensor"])
def test_layers_with_more_than_attributes_are_not_compared(change):
    layers = [Scaled(1), Scaled(1)]
    if change == "hook":
        layers[1].linear.register_forward_hook(lambda *_: None)
    elif change == "buffer":
        layers[1].register_buffer("angles", torch.ones(2), persistent=False)
    else:
        layers[1].scale = torch.ones(2)
    assert layer_kinds(layers, "aa") is None
