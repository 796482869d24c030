"""Calls, weights, and states of layers that were not captured, and their names."""

import dataclasses
import itertools

import pytest

from optimum_neuron.base.core import Choice
from optimum_neuron.compiler import Call, Graph, Program
from optimum_neuron.compiler.passes import NotUniformError, stretch
from optimum_neuron.compiler.passes.stretch import _reindexed
from optimum_neuron.compiler.stacks import Stack
from tests.programs import spec

STACK = Stack(path="model.layers", num_layers=20, captured=Choice(value=2, reason="all are alike"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("weight:model.layers.1.up.weight", "weight:model.layers.7.up.weight"),
        ("weight:model.layers.10.up.weight", "weight:model.layers.10.up.weight"),
        ("weight:model.norm.1", "weight:model.norm.1"),
        ("state:keys.1", "state:keys.7"),
        ("state:keys.0", "state:keys.0"),
        ("state:keys.11", "state:keys.11"),
        ("const:table.1", "const:table.1"),
        ("tmp:1", "tmp:1"),
        ("input:x", "input:x"),
    ],
)
def test_only_what_the_captured_layer_owns_is_renamed(value, expected):
    assert _reindexed(value, 1, 7, STACK) == expected


def call(path, *inputs, output, subprogram=""):
    return Call(subprogram=subprogram, inputs=inputs, outputs=(output,), module_path=path)


def own(index):
    return f"weight:layers.{index}.up", f"state:keys.{index}"


BODIES, SHAPES = "body_{}".format, spec


def short(period):
    """A program with four of eleven layers, behind a call and before another, and its stack."""
    layers = [
        call(f"layers.{n}", f"tmp:{n}", *own(n), output=f"tmp:{n + 1}", subprogram=BODIES(n % period)) for n in range(4)
    ]
    calls = call("", "input:x", output="tmp:0"), *layers, call("", "tmp:4", "tmp:0", output="tmp:5")
    graph = Graph(name="graph", inputs={}, outputs={"y": "tmp:5", "last": "tmp:4", "first": "tmp:1"}, calls=calls)
    weights, states = ({name.format(n): SHAPES(n % period) for n in range(4)} for name in ("layers.{}.up", "keys.{}"))
    program = Program(graphs={"graph": graph}, subprograms={}, weights=weights, states=states, constants={})
    return program, Stack(path="layers", num_layers=11, captured=Choice(value=4, reason="test"), period=period)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_layers_repeat_those_of_one_period(period):
    program, stack = short(period)
    longer = stretch(program, "graph", stack)
    before, *layers, after = longer.graphs["graph"].calls
    assert [one.module_path for one in layers] == list(stack.layers)
    assert [one.subprogram for one in layers] == [BODIES(n % period) for n in range(11)]
    assert longer.weights == {f"layers.{n}.up": SHAPES(n % period) for n in range(11)}
    assert longer.states == {f"keys.{n}": SHAPES(n % period) for n in range(11)}
    for n, (previous, one) in enumerate(itertools.pairwise((before, *layers))):
        assert one.inputs == (*previous.outputs, *own(n))
    assert len({value for one in layers for value in one.outputs}) == 11
    (last,) = layers[-1].outputs
    assert (before, after.inputs) == (program.graphs["graph"].calls[0], (last, "tmp:0"))
    assert longer.graphs["graph"].outputs == {"y": "tmp:5", "last": last, "first": "tmp:1"}


def test_layers_with_a_call_between_them_are_not_repeated():
    program, stack = short(1)
    *calls, last, after = program.graphs["graph"].calls
    graph = dataclasses.replace(program.graphs["graph"], calls=(*calls, after, last))
    with pytest.raises(NotUniformError, match="the layers are not consecutive calls"):
        stretch(dataclasses.replace(program, graphs={"graph": graph}), "graph", stack)
