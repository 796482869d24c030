"""Tracing a module without its weights."""

import inspect
import logging
import statistics
import struct
import sys
import warnings

import pytest
import torch
from accelerate import init_empty_weights
from torch import nn

from optimum_neuron.compiler import capture, compile_graphs
from optimum_neuron.compiler.passes import outline
from optimum_neuron.errors import CaptureError, UnsupportedOperatorError
from optimum_neuron.hardware import TARGETS
from tests.programs import Calls, capture_entry, compile_module, run_program, spec
from tests.raising import raises, refused_operators


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.register_buffer("stored", torch.ones(4))

    def forward(self, ids):
        return self.head(self.embed(ids) * self.table + self.stored)


IDS = {"ids": spec(1, 3, dtype="int64")}


def test_meta_parameters_suffice_and_stay_on_meta():
    with init_empty_weights():
        model = nn.Sequential(nn.Linear(4, 4096), nn.Linear(4096, 4))
    before = dict(model.named_parameters())
    program = outline(capture(model, name="g", inputs={"x": spec(1, 4)}))
    assert program.weights["0.weight"] == spec(4096, 4) and len(program.weights) == 4
    after = dict(model.named_parameters())
    assert all(after[name] is before[name] and after[name].device.type == "meta" for name in before)


def test_capture_leaves_module_unchanged_even_on_failure():
    model = Tied()
    before = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    values = {name: tensor.clone() for name, tensor in before.items()}
    capture(model, name="g", inputs=IDS)
    with pytest.raises(CaptureError):
        capture(model, name="g", inputs={"ids": spec(1, 3)})
    after = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    assert all(after[name] is before[name] and torch.equal(after[name], values[name]) for name in before)
    assert model.head.weight is model.embed.weight and model.head.weight.requires_grad


def test_tied_weights_are_one_and_only_computed_buffers_are_constants():
    model = Tied()
    captured = capture(model, name="g", inputs=IDS)
    assert captured.tied == {"head.weight": "embed.weight"}
    program = outline(captured)
    assert set(program.weights) == {"embed.weight", "stored"}
    assert {name: tensor.tolist() for name, tensor in program.constants.items()} == {"table": [0, 1, 2, 3]}
    ids = torch.tensor([[1, 2, 9]])
    assert torch.equal(run_program(program, model, [ids], graph="g")["output"], model(ids))


def test_constant_is_copy():
    model = Tied()
    program = outline(capture(model, name="g", inputs=IDS))
    model.table.zero_()
    assert program.constants["table"].tolist() == [0, 1, 2, 3]


def test_unused_weights_are_not_required():
    model = Tied()
    model.unused = nn.Linear(4, 4)
    assert set(outline(capture(model, name="g", inputs=IDS)).weights) == {"embed.weight", "stored"}


class Branches(nn.Module):
    def forward(self, x):
        y = x * 2
        if y.sum() > 0:
            return y
        return x


class Lengths(nn.Module):
    def forward(self, x):
        y = x * 2
        return y[: int(y[0].item())]


class Casts(nn.Module):
    def forward(self, x):
        y = x * 2
        return y * float(y.sum().item() > 3)


class Keys(nn.Module):
    def forward(self, x):
        y = x * 2
        return y * {1: 2}.get(y.nonzero().shape[0], 3)


class Means(nn.Module):
    def forward(self, x):
        y = x * 2
        return y * statistics.mean([y[0].item(), 2.0])


class Packs(nn.Module):
    def forward(self, x):
        y = x * 2
        return y * struct.unpack("f", struct.pack("f", y[0].item()))[0]


class WholeNumbers(nn.Module):
    def forward(self, x):
        y = x * 2
        return y * y[0].item().is_integer()


@pytest.mark.parametrize("kind", [Branches, Lengths, Casts, Keys, Means, Packs, WholeNumbers])
def test_data_dependent_code_is_an_error_with_user_line(kind, capfd):
    with raises(CaptureError, graph="decode") as excinfo:
        capture(kind(), name="decode", inputs={"x": spec(4)})
    place = f"{__file__}:{inspect.getsourcelines(kind.forward)[1] + 2}"
    assert excinfo.value.details["source_line"].partition(": ")[0] == place
    assert place in excinfo.value.message, "people read it too"
    assert capfd.readouterr().err == "", "torch's own dump of the graph is not shown"


def test_user_error_propagates_unchanged():
    def function(x):
        return {}["missing"] + x

    with pytest.raises(KeyError, match="missing"):
        capture(Calls(function), name="g", inputs={"x": spec(2)})


def test_data_dependent_shapes_are_refused():
    for function, operator in ((lambda x: x.nonzero(), "aten.nonzero"), (lambda x: x[x > 0], "aten.index")):
        with raises(UnsupportedOperatorError) as error:
            compile_module(Calls(function), {"x": spec(4)})
        assert operator in refused_operators(error)


def test_model_may_warn_and_print_and_loggers_keep_their_levels(capfd):
    def function(x):
        print("note", file=sys.stderr)
        warnings.warn("traced", stacklevel=1)
        return x + 1

    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before = logger.level
    capture(Calls(function), name="g", inputs={"x": spec(2)})
    assert capfd.readouterr().err == "note\n" and logger.level == before


class Counter(nn.Module):
    """Layers that add to a state each."""

    class Layer(nn.Module):
        def forward(self, x, state):
            state.add_(x)
            return x + state

    def __init__(self, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(self.Layer() for _ in range(num_layers))

    def forward(self, x, states):
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state)
        return x


def test_only_states_of_captured_layers_are_traced():
    states = {f"sum.{index}": spec(2) for index in range(5)}
    captured = capture(Counter(5), name="g", inputs={"x": spec(2)}, states=states)
    assert captured.states == ("sum.0", "sum.1")
    whole = capture(Counter(5), name="g", inputs={"x": spec(2)}, states=states, shorten=False)
    assert whole.states == tuple(states) and whole.stacks[0].captured.reason == "captured whole"


class TwoLists(Counter):
    """Its states belong to layers that are no stack; next to them is a list of two."""

    def __init__(self):
        super().__init__(0)
        self.first, self.second, self.third = (self.Layer() for _ in range(3))
        self.factors = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, x, states):
        for layer, state in zip((self.first, self.second, self.third), states, strict=True):
            x = layer(x, state)
        return self.factors[1](self.factors[0](x))


def test_fully_captured_list_keeps_all_states():
    states = {f"sum.{index}": spec(2) for index in range(3)}
    captured = capture(TwoLists(), name="g", inputs={"x": spec(2)}, states=states)
    assert captured.states == tuple(states) and captured.stacks[0].captured.value == 2


def test_progress_is_reported_for_each_entry_point():
    names, module = [], Calls(lambda x: x + 1)
    recaptures = [
        lambda shorten, name=name: capture_entry(module, shorten, name=name, inputs={"x": spec(2)}) for name in "ab"
    ]
    compiled_model = compile_graphs(recaptures, target=TARGETS["inf2"], on_done=names.append)
    assert names == ["a", "b"] == list(compiled_model.program.graphs) and len(compiled_model.program.subprograms) == 1
    assert len(compiled_model.reports) == 2
