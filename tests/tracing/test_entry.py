"""States: buffers that stay on the device, and valid aliases."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import make_entry, set_neuron_cores, trace
from tests.raising import raises
from tests.tracing.conftest import FAST, Counter, session


def counted(module, x, calls):
    """Results of consecutive calls of the module."""
    module = copy.deepcopy(module)
    results = []
    with torch.no_grad():
        for _ in range(calls):
            output, module.total = module(x)
            results.append(output)
    return results


@pytest.mark.parametrize("inline", [True, False])
def test_aliased_output_is_next_value_of_its_state_and_is_not_returned(inline, tmp_path):
    module, x = Counter(), torch.rand(2, 4)
    options = {"compiler_args": FAST, "inline_weights_to_neff": inline}
    model = trace(module, x, input_output_aliases={module.total: 1}, **options)
    expected = counted(module, x, 3)
    assert isinstance(model(x * 0), torch.Tensor)
    torch.jit.save(model, tmp_path / "counter.pt")
    second = torch.jit.load(tmp_path / "counter.pt")
    for target in expected:
        torch.testing.assert_close(second(x), target)
    assert module.total.unique().tolist() == [1.0], "the original is as it was"


def test_state_in_deep_model_with_equal_layers():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
            self.cells = nn.ModuleList([Counter(), Counter()])

        def forward(self, x):
            first, total_0 = self.cells[0](x)
            second, total_1 = self.cells[1](first)
            for layer in self.layers:
                second = layer(second)
            return {"x": second}, total_0, total_1

    deep, x = Deep().eval(), torch.rand(2, 4)
    with raises(ConfigError, option="input_output_aliases", tensors=["float32[2, 4]"]):
        trace(deep, x, input_output_aliases={torch.ones(2, 4): 1})
    model = trace(deep, x, input_output_aliases={deep.cells[0].total: 1, deep.cells[1].total: 2}, compiler_args=FAST)
    for _ in range(3):
        expected, deep.cells[0].total, deep.cells[1].total = deep(x)
        actual = model(x)
        torch.testing.assert_close(actual["x"], expected["x"])


def test_state_is_charged_and_reset_on_another_core():
    module, x = Counter(), torch.rand(2, 4)
    model = trace(module, x, input_output_aliases={module.total: 1}, compiler_args=FAST)
    first = model(x)
    assert not torch.equal(model(x), first)
    assert session(model).load()[0].loaded.need.kv_cache == 32
    set_neuron_cores(model, start_nc=1)
    torch.testing.assert_close(model(x), first)
    assert session(model).core_ids == (1,)


class Returns(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.register_buffer("state", torch.zeros(2))
        self.result = result

    def forward(self, x):
        return self.result(self.state + x)


@pytest.mark.parametrize(
    ("result", "index", "details"),
    [
        (lambda s: s, 0, {"output": 0, "num_outputs": 1, "actual": None}),
        (lambda s: (s, s), 2, {"output": 2, "num_outputs": 2, "actual": None}),
        (lambda s: (s, s), -1, {"output": -1, "num_outputs": 2, "actual": None}),
        (lambda s: (s, [s]), 1, {"output": 1, "num_outputs": 2, "actual": None}),
        (lambda s: (s, s.double()), 1, {"actual": "float64[2]", "expected": "float32[2]"}),
        (lambda s: (s,), 0, {"option": "input_output_aliases"}),
    ],
)
def test_invalid_alias_is_refused(result, index, details):
    module = Returns(result)
    with raises(ConfigError, **details):
        trace(module, torch.rand(2), input_output_aliases={module.state: index}, compiler_args=FAST)


def test_inputs_are_named_after_parameters():
    def function(x, mask, *rest):
        return x

    entry = make_entry(function, (torch.rand(1), {"left": torch.rand(2)}, torch.rand(3), torch.rand(4)), {})
    assert list(entry.input_specs) == ["x", "mask.left", "input2", "input3"]
    assert type(entry).__name__ == "function"
    assert list(make_entry(torch.sin, torch.rand(1), {}).input_specs) == ["input0"]
