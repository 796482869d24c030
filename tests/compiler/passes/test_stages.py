"""Programs in pipeline stages: every stage has its layers, and gets what it reads from the stages before."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import Call, Graph, Program, collectives, memory_need, stage_needs
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.passes import divide_into_stages, merge, stage_programs, verify, without_sends
from optimum_neuron.errors import ModelError
from optimum_neuron.runtime import Executor
from optimum_neuron.simulator.work import work_of_program
from tests.programs import compile_module, spec, weights_of
from tests.raising import raises

NUM_LAYERS, SIZE = 5, 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x, scale, state):
        state.add_(x)
        return x + self.linear(state) * scale


class Model(nn.Module):
    """A stack between an embedding and a head with one weight; the end may write the state of the first layer."""

    def __init__(self, is_shared=False):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(SIZE, SIZE))
        self.layers = nn.ModuleList(Layer() for _ in range(NUM_LAYERS))
        self.is_shared = is_shared

    def forward(self, x, states):
        hidden, scale = x @ self.embed, x.sum(-1, keepdim=True)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, scale, states[index])
        if self.is_shared:
            states[0].add_(hidden)
        return hidden @ self.embed.T


STATES = {f"total.{layer}": spec(2, SIZE) for layer in range(NUM_LAYERS)}


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return Model()


@pytest.fixture(scope="module")
def whole(module):
    return compile_module(module, {"x": spec(2, SIZE)}, states=STATES).program


@pytest.fixture(scope="module")
def divided(whole):
    return verify(divide_into_stages(whole, 3), after="divide_into_stages")


def test_layers_are_divided_in_order(divided):
    (graph,) = divided.graphs.values()
    stages = {call.module_path: call.stage for call in graph.calls if call.module_path}
    assert list(stages.values()) == [0, 0, 1, 1, 2]
    assert graph.calls[0].stage == 0 and graph.calls[-1].stage == 2
    assert divided.num_stages == 3


def test_values_are_sent_by_the_stage_before(divided):
    (graph,) = divided.graphs.values()
    made_in = {value: call.stage for call in graph.calls for value in call.outputs}
    sends = [call for call in graph.calls if collectives.is_send(divided.subprograms[call.subprogram])]
    # The hidden state and the scale; the last stage has the scale from the second one.
    assert [(made_in[call.inputs[0]], call.stage) for call in sends] == [(0, 1)] * 2 + [(1, 2)] * 2


def test_stages_of_modules_may_be_given(whole):
    (graph,) = divide_into_stages(
        whole, 2, stages={f"layers.{index}": index // 4 for index in range(5)}
    ).graphs.values()
    assert [call.stage for call in graph.calls if call.module_path] == [0, 0, 0, 0, 1]


def test_a_stage_may_have_one_layer(whole):
    assert divide_into_stages(whole, NUM_LAYERS).num_stages == NUM_LAYERS


def test_one_stage_needs_no_other_program(whole, divided):
    assert divide_into_stages(whole, 1) is whole and without_sends(whole) is whole and stage_programs(whole)[0] is whole
    assert without_sends(divided).structure() == whole.structure()


def test_stages_one_after_the_other_compute_the_whole(module, whole, divided):
    (name,) = whole.graphs
    parts = [verify(part, after="stage_programs") for part in stage_programs(divided)]
    assert [sorted(part.states) for part in parts] == [["total.0", "total.1"], ["total.2", "total.3"], ["total.4"]]
    assert ["embed" in part.weights for part in parts] == [True, False, True]
    assert all(part.num_stages == 1 for part in parts)
    graphs = [part.graphs[name] for part in parts]
    assert [list(graph.inputs)[:1] == ["x"] for graph in graphs] == [True, False, False]
    # The hidden state and the scale go from stage to stage.
    assert [(len(graph.inputs), len(graph.outputs)) for graph in graphs] == [(1, 2), (2, 2), (2, 1)]
    x = torch.randn(2, SIZE)
    values = {"x": x}
    for part in parts:
        functions = {
            key: (lambda tensors: tensors) if collectives.is_send(one) else aten_function(one.body)
            for key, one in part.subprograms.items()
        }
        executor = Executor(part, functions, weights_of(part, module))
        values |= executor.run(name, [values[one] for one in part.graphs[name].inputs], executor.new_state())
    expected = module(x, [torch.zeros(2, SIZE) for _ in STATES])
    torch.testing.assert_close(values["output"], expected)


def test_a_graph_without_states_is_of_the_first_stage(whole, divided):
    other = compile_module(nn.Linear(SIZE, SIZE), {"input": spec(2, SIZE)}, name="other").program
    both = divide_into_stages(merge([whole, other]), 3)
    assert both.graphs["other"] == other.graphs["other"]
    assert [sorted(part.graphs) for part in stage_programs(both)] == [["graph", "other"], ["graph"], ["graph"]]


def test_memory_and_work_are_those_of_each_stage(whole, divided):
    (name,) = whole.graphs
    needs = stage_needs(divided)
    assert sum(need.kv_cache for need in needs) == memory_need(whole).kv_cache
    assert memory_need(divided) == max(needs, key=lambda need: need.total)
    work = work_of_program(divided, name)
    sends = [step for step in work.steps if step.name == "neuron.send"]
    # The hidden state and the scale go from stage to stage.
    hidden, scale = 2 * SIZE * 4, 2 * 4
    assert sorted(step.work.sent_bytes for step in sends) == [scale, scale, hidden, hidden]
    assert [step.stage for step in sends] == [1, 1, 2, 2] and work.total.num_sends == len(sends)
    totals = [work_of_program(part, name).total.weight_bytes for part in stage_programs(divided)]
    assert [stage.weight_bytes for stage in work.by_stage] == totals
    assert any(node.target is collectives.SEND for one in divided.subprograms.values() for node in one.body.graph.nodes)


def of_calls(*calls):
    """A program whose calls read a value each; without results, so that nothing is sent."""
    made = [Call(subprogram="body", inputs=(value,), outputs=(), module_path=path) for path, value in calls]
    graph = Graph(name="graph", inputs={}, outputs={}, calls=tuple(made))
    body = SimpleNamespace(mutated=())
    return Program(graphs={"graph": graph}, subprograms={"body": body}, weights={}, states={}, constants={})


def test_code_outside_of_the_layers_is_of_the_stage_of_the_layer_before():
    for first in ("state:table", "input:x"):
        program = of_calls(("", first), ("layers.0", "state:a"), ("layers.1", "state:b"), ("", "state:b"))
        assert [call.stage for call in divide_into_stages(program, 2).graphs["graph"].calls] == [0, 0, 1, 1]
    with raises(ModelError, option="pipeline_parallel_size", value=2, num_layers=1):
        divide_into_stages(of_calls(("", "state:a"), ("", "state:b")), 2)


@pytest.mark.parametrize(("path", "place"), [("", "code outside of the layers"), ("layers.2", "layers.2")])
def test_a_state_that_two_stages_read_is_refused(path, place):
    program = of_calls(("layers.0", "state:a"), ("layers.1", "state:b"), (path, "state:a"))
    with raises(ModelError, option="pipeline_parallel_size", module_path=path) as error:
        divide_into_stages(program, 2)
    assert place in str(error.value)


class Scaled(Model):
    def forward(self, x, states):
        return super().forward(x, states) * torch.tensor([2.0])


def test_a_stage_has_the_constants_that_it_reads():
    whole = compile_module(Scaled(), {"x": spec(2, SIZE)}, states=STATES).program
    assert [len(part.constants) for part in stage_programs(divide_into_stages(whole, 3))] == [0, 0, 1]


def test_more_stages_than_layers_and_shared_states_are_refused(whole):
    with pytest.raises(ModelError) as caught:
        divide_into_stages(whole, NUM_LAYERS + 1)
    assert caught.value.details["num_layers"] == NUM_LAYERS
    shared = compile_module(Model(is_shared=True), {"x": spec(2, SIZE)}, states=STATES).program
    with pytest.raises(ModelError) as caught:
        divide_into_stages(shared, 2)
    assert caught.value.details["option"] == "pipeline_parallel_size"
