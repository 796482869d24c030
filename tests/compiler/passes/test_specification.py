"""Every way in which a pass could break a program is caught, with the pass, graph and call in the message."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import fx, nn

from optimum_neuron.compiler import Program
from optimum_neuron.compiler.passes import verify
from tests.programs import body_of, compile_module, spec, subprogram_of


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.register_buffer("table", torch.ones(4), persistent=False)

    def forward(self, x, states):
        states[0].copy_(x)
        for layer in self.layers:
            x = layer(x)
        return x * self.table


@pytest.fixture(scope="module")
def good() -> Program:
    program = compile_module(Model(), {"x": spec(2, 4)}, states={"cache.0": spec(2, 4)}).program
    assert [call.module_path for call in program.graphs["graph"].calls] == ["", "layers.0", "layers.1", ""]
    return program


def with_call(program, position, **changes):
    graph = program.graphs["graph"]
    calls = list(graph.calls)
    calls[position] = dataclasses.replace(calls[position], **changes)
    return with_graph(program, calls=tuple(calls))


def with_graph(program, **changes):
    graph = dataclasses.replace(program.graphs["graph"], **changes)
    return dataclasses.replace(program, graphs={"graph": graph})


def with_body(program, subprogram):
    return dataclasses.replace(program, subprograms={**program.subprograms, subprogram.name: subprogram})


def custom_operator():
    body = body_of(lambda x: x * 2, spec(2))
    graph = fx.Graph()
    argument = graph.placeholder("arg0")
    graph.output((graph.call_function(torch.ops.prims.neg.default, (argument,)),))
    return dataclasses.replace(subprogram_of(lambda x: x * 2, spec(2)), body=fx.GraphModule(body, graph))


def of_int4(subprogram):
    return dataclasses.replace(subprogram, inputs=(spec(2, dtype="int4"),))


def test_valid_program_is_returned_unchanged(good):
    assert verify(good, after="outline") is good


class Largest(nn.Module):
    def forward(self, x):
        values, positions = x.topk(2)
        return values * positions


def test_parts_of_a_result_are_no_operator():
    program = compile_module(Largest(), {"x": spec(2, 4)}).program
    assert verify(program, after="outline") is program


BROKEN = {
    "no subprogram": (lambda p: with_call(p, 1, subprogram="sub_none"), "no subprogram sub_none", 1),
    "fewer arguments": (lambda p: with_call(p, 1, inputs=("input:x",)), "1 arguments", 1),
    "no results": (lambda p: with_call(p, 1, outputs=()), "0 results", 1),
    "result used before it is made": (
        lambda p: with_call(p, 1, inputs=("tmp:9", *p.graphs["graph"].calls[1].inputs[1:])),
        "tmp:9 is not defined",
        1,
    ),
    "undeclared weight": (lambda p: dataclasses.replace(p, weights={}), "weight:layers.0.weight is not defined", 1),
    "undeclared state": (lambda p: dataclasses.replace(p, states={}), "state:cache.0 is not defined", 0),
    "undeclared constant": (lambda p: dataclasses.replace(p, constants={}), "const:table is not defined", 3),
    "undeclared input": (lambda p: with_graph(p, inputs={}), "input:x is not defined", 0),
    "other shape": (
        lambda p: dataclasses.replace(p, weights={**p.weights, "layers.1.weight": spec(4, 5)}),
        "weight:layers.1.weight is float32[4, 5], the body takes float32[4, 4]",
        2,
    ),
    "other dtype": (
        lambda p: dataclasses.replace(p, states={"cache.0": spec(2, 4, dtype="bfloat16")}),
        "state:cache.0 is bfloat16[2, 4]",
        0,
    ),
    "other constant": (lambda p: dataclasses.replace(p, constants={"table": torch.ones(5)}), "const:table is", 3),
    "assigned twice": (lambda p: with_call(p, 2, outputs=p.graphs["graph"].calls[1].outputs), "is assigned twice", 2),
    "result written to a weight": (lambda p: with_call(p, 1, outputs=("weight:x",)), "weight:x is assigned twice", 1),
    "graph's result": (lambda p: with_graph(p, outputs={"output": "tmp:99"}), "result output is not defined", None),
    "operator": (lambda p: with_body(p, custom_operator()), "calls prims.neg.default", None),
    "dtype": (lambda p: with_body(p, of_int4(next(iter(p.subprograms.values())))), "has dtype int4", None),
}


@pytest.mark.parametrize(("break_it", "message", "position"), BROKEN.values(), ids=BROKEN)
def test_invalid_program_is_refused_with_reason(good, break_it, message, position):
    with pytest.raises(AssertionError) as excinfo:
        verify(break_it(good), after="some_pass")
    where = "after some_pass: "
    if position is not None:
        path = good.graphs["graph"].calls[position].module_path
        where += f"graph graph, call {position} ({path or 'glue'}): "
    assert str(excinfo.value).startswith(where) and message in str(excinfo.value)
