"""The source that torch generates for a body is written when the body is run, and goes with the body."""

import gc
import linecache

import torch
from torch import nn
from torch.fx import graph_module

from optimum_neuron.compiler import read_program, write_program
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.hardware import TARGETS
from tests.programs import body_of, compile_module, spec


def num_sources():
    """Generated sources that torch and Python keep."""
    lines = sum(name.startswith("<eval_with_key>") for name in linecache.cache)
    return len(graph_module._loader.eval_cache), lines


def test_freed_programs_leave_no_source(tmp_path):
    path = tmp_path / "program.neff"
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled_model = compile_module(model, {"x": spec(2, 4)})
    write_program(path, compiled_model.program, name="m", target=TARGETS["trn1"], metadata={})
    del compiled_model
    gc.collect()
    before = num_sources()
    for _ in range(3):
        program = read_program(open_neff(path))
    gc.collect()  # graph modules refer to themselves
    assert num_sources() == before
    subprogram = next(iter(program.subprograms.values()))
    body = subprogram.body
    assert body(*(torch.ones(argument.shape) for argument in subprogram.inputs))[0].shape == (2, 4)
    file = type(body).forward.__code__.co_filename
    assert "def forward" in "".join(linecache.getlines(file))
    assert num_sources()[0] == before[0] + 1
    del program, subprogram, body
    gc.collect()
    assert num_sources() == before


def test_freed_host_functions_leave_no_source():
    query = spec(1, 2, 8, 4)
    attention = body_of(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v), query, query, query)
    plain = body_of(lambda x: x * 2, spec(2, 4))
    gc.collect()
    before = num_sources()
    functions = [aten_function(body) for body in (attention, plain)]
    assert num_sources()[0] == before[0] + len(functions)
    assert functions[0]([torch.ones(1, 2, 8, 4)] * 3)[0].eq(1).all()
    del functions
    gc.collect()
    assert num_sources() == before
