"""The border between device and host tensors of a compiled graph."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from optimum_neuron.device.dynamo import Calls
from optimum_neuron.device.dynamo.host_graph import border_of, on_device
from optimum_neuron.simulator.work import GraphWork
from tests.device.conftest import OPTLEVELS

SIZE = 1 << 16
CALLS = Calls("test of a border", GraphWork(name="nothing", steps=()))


def function_of(graph, inputs, make):
    graph_module = make_fx(graph, tracing_mode="fake")(*inputs)
    fakes = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    return on_device(graph_module, fakes, border_of(graph_module, fakes), CALLS, make)


def test_host_code_frees_inputs_after_last_read():
    """Saved activations are most of a backward's inputs: held to its end they would be the peak of a training step."""
    lives = []

    def make(graph_module, example_inputs):
        def host_code(arguments):
            y = arguments[1]
            arguments.clear()
            lives.extend(reference() is not None for reference in references)
            return [y.view(2, -1)]

        return host_code

    inputs = [torch.ones(SIZE, device="neuron"), torch.arange(float(SIZE), device="neuron")]
    references = [weakref.ref(value) for value in inputs]
    function = function_of(lambda x, y: [y.view(2, -1)], inputs, make)
    address = inputs[1].data_ptr()
    (result,) = function(inputs)
    assert lives == [False, True] and inputs == []
    # A result that overlaps an input's bytes still overlaps them, and they are charged once.
    assert result.is_neuron and result.data_ptr() == address and result[1, 0] == SIZE // 2
    used = torch.neuron.memory_allocated()
    del result
    assert used - torch.neuron.memory_allocated() == 4 * SIZE


def test_result_over_a_live_input():
    kept = torch.zeros(4, device="neuron")
    function = function_of(lambda x: [x.view(2, 2)], [kept], lambda *_: lambda inputs: [inputs.pop().view(2, 2)])
    (result,) = function([kept])
    kept.fill_(3)
    assert result.sum() == 12 and result.untyped_storage()._cdata == kept.untyped_storage()._cdata


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_tensors_move_between_host_and_device(optlevel):
    def move(x):
        return x + torch.arange(2).to(x.device), x.cpu()

    x = torch.ones(2, device="neuron")
    total, kept = torch.compile(move, backend="neuron", options={"optlevel": optlevel})(x)
    x.zero_()
    assert total.device == x.device and total.tolist() == [1, 2]
    assert kept.device.type == "cpu" and kept.tolist() == [1, 1], "a copy shares no memory"
