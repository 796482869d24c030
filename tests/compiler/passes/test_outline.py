"""A captured graph as calls of subprograms, one for each layer."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import capture, compile_graphs
from optimum_neuron.compiler.passes import outline, verify
from optimum_neuron.compiler.passes.outline import _layer_path, located
from optimum_neuron.errors import CaptureError
from optimum_neuron.hardware import TARGETS
from tests.programs import Calls, capture_entry, compile_module, operators, run_program, spec
from tests.raising import raises


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class Model(nn.Module):
    def __init__(self, num_layers=2):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList(Layer() for _ in range(num_layers))
        self.head = nn.Linear(4, 8)

    def forward(self, x):
        x = self.first(x).tanh()
        for layer in self.layers:
            x = layer(x)
        return self.head(x[-1:])


def outlined(module, *inputs, outputs=("output",), **options):
    names = {f"in{index}": item for index, item in enumerate(inputs)}
    return verify(outline(capture(module, name="graph", inputs=names, outputs=outputs, **options)), after="outline")


def all_operators(program):
    return [op for subprogram in program.subprograms.values() for op in operators(subprogram.body)]


def test_equal_layers_call_one_body():
    model = Model()
    program = outlined(model, spec(3, 4))
    calls = program.graphs["graph"].calls
    assert [call.module_path for call in calls] == ["", "layers.0", "layers.1", ""]
    assert calls[1].subprogram == calls[2].subprogram and len(program.subprograms) == 3
    assert calls[2].inputs == ("tmp:1", "weight:layers.1.linear.weight", "weight:layers.1.linear.bias")
    x = torch.randn(3, 4)
    assert torch.equal(run_program(program, model, [x])["output"], model(x))


class Turned(nn.Module):
    """Hands a transposed view to its layers."""

    def __init__(self, write: bool = False):
        super().__init__()
        self.layers, self.write = nn.ModuleList(Layer() for _ in range(2)), write

    def forward(self, x):
        y = x.clone()
        turned = y.transpose(0, 1)
        for layer in self.layers:
            turned = layer(turned)
        return turned.t() + y.add_(1) if self.write else turned.t()


def test_layers_get_contiguous_arguments_and_results_are_right():
    model, x = Turned(), torch.randn(4, 3)
    program = outlined(model, spec(4, 3))
    assert all_operators(program).count("aten.contiguous.default") == 2, "the first layer's argument and the result"
    torch.testing.assert_close(run_program(program, model, [x])["output"], model(x), atol=1e-6, rtol=0)


class Fresh(nn.Module):
    """Hands its layers tensors that are no views, or views that it wrote itself, and writes to others later."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        y = x.clone()
        y.add_(1)
        turned, own = y.transpose(0, 1), y.t().exp()  # as strided as what it is computed from
        first = turned
        for layer in self.layers:
            turned = layer(turned)
        last = (turned.t() + own.add_(1).t() + first.t()).contiguous()
        return last.mul_(2).t()


def test_strided_tensors_that_are_written_by_their_own_part_or_no_views_are_taken():
    model, x = Fresh(), torch.randn(4, 3)
    program = outlined(model, spec(4, 3))
    torch.testing.assert_close(run_program(program, model, [x])["output"], model(x))


class TurnsBack(nn.Module):
    """Its layers return a view, which is written right behind the last one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Turns() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.add_(1)


class Turns(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return super().forward(x).t()


@pytest.mark.parametrize("model", [Turned(write=True), TurnsBack()])
def test_view_written_elsewhere_is_refused(model):
    with raises(CaptureError) as error:
        outlined(model, spec(4, 4))
    lines = error.value.details["source_lines"]
    assert lines and all("test_outline.py:" in line and line in str(error.value) for line in lines)


class Masked(nn.Module):
    """Fills a causal mask in place and expands it over the batch, as CLIP's text model does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Masks() for _ in range(2))

    def forward(self, x):
        mask = torch.full((4, 4), -10.0)
        mask.masked_fill_(torch.arange(4) < torch.arange(1, 5).view(4, 1), 0)
        mask = mask[None].expand(x.shape[0], 4, 4)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x, mask):
        return self.inner(x + mask)


def test_view_written_before_is_passed_on():
    model, x = Masked(), torch.randn(3, 4, 4)
    program = outlined(model, spec(3, 4, 4))
    torch.testing.assert_close(run_program(program, model, [x])["output"], model(x), atol=1e-6, rtol=0)


def test_one_body_is_shared_by_graphs_of_other_lengths():
    model = Model()
    lengths = {"prefill": 3, "decode": 2}

    def compiled(cuts):
        recaptures = [
            functools.partial(capture_entry, model, name=name, inputs={"x": spec(length, 4)}, cuts=cuts)
            for name, length in lengths.items()
        ]
        return compile_graphs(recaptures, target=TARGETS["inf2"]).program

    def names(program):
        return [{call.subprogram for call in graph.calls} for graph in program.graphs.values()]

    program = compiled(("head",))
    prefill, decode = names(program)
    (shared,) = prefill & decode
    assert operators(program.subprograms[shared].body) == ["aten.linear.default"]
    assert program.graphs["decode"].calls[-1].module_path == "head"
    for name, length in lengths.items():
        x = torch.randn(length, 4)
        assert torch.equal(run_program(program, model, [x], graph=name)["output"], model(x))
    assert not set.intersection(*names(compiled(())))


def test_input_results_and_early_results_are_kept():
    def function(x, y):
        early = x * 2
        return early + y, x, early

    program = outlined(Calls(function), spec(2), spec(2), outputs=("sum", "same", "early"))
    x, y = torch.randn(2), torch.randn(2)
    results = run_program(program, Calls(function), [x, y])
    assert list(results) == ["sum", "same", "early"]
    assert all(torch.equal(a, b) for a, b in zip(results.values(), function(x, y), strict=True))
    assert program.graphs["graph"].outputs["same"] == "input:in0"


def test_unused_input_stays_an_input():
    program = outlined(Calls(lambda x, y: y + 1), spec(2), spec(3))
    assert list(program.graphs["graph"].inputs.values()) == [spec(2), spec(3)]
    results = run_program(program, nn.Module(), [torch.zeros(2), torch.zeros(3)])
    assert results["output"].tolist() == [1, 1, 1]


class Regions(nn.Module):
    """Grad and autocast regions, nested, as rotary embeddings write them."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            y = x.to(torch.bfloat16)
            with torch.set_grad_enabled(True):
                z = y.float() * 3
        return z + x, y


def test_regions_are_inlined_and_checks_of_export_dropped():
    program = outlined(Regions(), spec(2, 2), outputs=("sum", "narrow"))
    assert all(op.startswith("aten.") and "_assert" not in op for op in all_operators(program))
    x = torch.randn(2, 2)
    result = run_program(program, Regions(), [x])
    assert all(torch.equal(a, b) for a, b in zip(result.values(), Regions()(x), strict=True))


class InnerRegions(nn.Module):
    """A region with two others inside."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            for factor in (2, 3):
                x = x.exp()
                with torch.autocast("cpu", enabled=False):
                    x = (x * factor).sin()
        return x


def test_regions_inside_regions_are_inlined():
    captured = capture(InnerRegions(), name="graph", inputs={"x": spec(2, 2)})
    assert [len(list(one.children())) for one in captured.exported.graph_module.children()] == [2]
    program, x = outline(captured), torch.randn(2, 2)
    assert [name.split(".")[1] for name in all_operators(program)] == 2 * ["exp", "mul", "sin"]
    assert torch.equal(run_program(program, nn.Module(), [x])["output"], InnerRegions()(x))


def test_dead_code_is_removed_first_and_state_writes_stay():
    def function(x, states):
        x.sort()
        states[0][1:].copy_(x[1:])
        return x + 1

    program = compile_module(Calls(function), {"x": spec(3)}, states={"cache.0": spec(3)}).program
    assert "aten.sort.default" not in all_operators(program)
    (subprogram,) = program.subprograms.values()
    assert subprogram.mutated and program.states == {"cache.0": spec(3)}
    state = torch.zeros(3)
    run_program(program, nn.Module(), [torch.tensor([1.0, 2.0, 3.0])], [state])
    assert state.tolist() == [0, 2, 3]


def test_unused_states_are_declared():
    program = outlined(Calls(lambda x, states: x + states[1]), spec(2), states={"a.0": spec(2), "b.0": spec(2)})
    assert list(program.states) == ["a.0", "b.0"]
    result = run_program(program, nn.Module(), [torch.ones(2)], [torch.full((2,), 5.0), torch.ones(2)])
    assert result["output"].tolist() == [2, 2]


def test_tensor_created_in_forward_is_constant():
    program = outlined(Calls(lambda x: x * torch.tensor([1.0, 2.0])), spec(2))
    (value,) = program.constants.values()
    assert value.tolist() == [1, 2]
    assert run_program(program, nn.Module(), [torch.ones(2)])["output"].tolist() == [1, 2]


class Tables(nn.Module):
    """Two tables, two buffers, and two weights, of which it reads one each."""

    def __init__(self):
        super().__init__()
        for name, is_read in (("unread", False), ("read", True)):
            self.register_buffer(f"{name}_table", torch.arange(2.0) + is_read, persistent=False)
            self.register_buffer(f"{name}_buffer", torch.ones(2), persistent=True)
            self.register_parameter(f"{name}_weight", nn.Parameter(torch.ones(2)))

    def forward(self, x):
        return x * self.read_table + self.read_buffer * self.read_weight


def test_what_nothing_reads_is_left_out():
    program = outlined(Tables(), spec(2))
    assert {name: value.tolist() for name, value in program.constants.items()} == {"read_table": [1, 2]}
    assert program.weights == {"read_buffer": spec(2), "read_weight": spec(2)}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("layers.0.linear", "layers.0"),
        ("layers.12", "layers.12"),
        ("layers.names.0", ""),
        ("layers", ""),
        ("model.layers.0", ""),
        ("decoder.layers.3.up", "decoder.layers.3"),
        ("head", "head"),
        ("head.linear", ""),
        ("", ""),
    ],
)
def test_nodes_are_of_the_layer_that_their_module_is_in(path, expected):
    node = torch.fx.Graph().placeholder("x")
    assert _layer_path(node, ["layers", "decoder.layers"], ("head",)) == ""
    node.meta["nn_module_stack"] = {"top": ("", nn.Module), "inner": (path, nn.Module)}
    assert _layer_path(node, ["layers", "decoder.layers"], ("head",)) == expected


def test_a_node_of_no_module_and_no_line_has_empty_names():
    node = torch.fx.Graph().placeholder("x")
    node.meta["val"] = torch.ones(1)
    assert located(node) == {"val": node.meta["val"], "module_path": "", "source_line": ""}
