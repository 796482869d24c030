"""Unrolled stacks match the full model; non-repeating stacks are captured whole."""

import dataclasses

import pytest
import torch
from torch import nn

from optimum_neuron.base.core import Choice
from optimum_neuron.compiler import capture
from optimum_neuron.compiler.passes import NotUniformError, outline, stretch
from tests.programs import compile_module, run_program, spec

SIZE, SLOTS = 4, 5


class Layer(nn.Module):
    """Reads and writes two caches, and shares a table and a mask with the other layers."""

    def __init__(self, index):
        super().__init__()
        self.layer_idx = index
        self.up, self.down = nn.Linear(SIZE, 8), nn.Linear(8, SIZE, bias=False)

    def forward(self, x, table, slot, values, keys):
        values.index_copy_(0, slot, x)
        keys[slot] = x * table
        return torch.tanh(x + self.down(torch.tanh(self.up(x))) + (keys * values).sum(0))


class Model(nn.Module):
    def __init__(self, num_layers, layer=Layer):
        super().__init__()
        self.layers = nn.ModuleList(layer(index) for index in range(num_layers))
        self.register_buffer("table", torch.rand(SIZE), persistent=False)
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, x, slot, states):
        return self.norm(self.run(x * 2, self.table + 1, slot, list(zip(states[::2], states[1::2], strict=True))))

    def run(self, x, table, slot, states):
        for index, (layer, (keys, values)) in enumerate(zip(self.layers, states, strict=True)):
            x = self.call(index, layer, x, table, slot, values, keys)
        return x

    def call(self, index, layer, *arguments):
        return layer(*arguments)


INPUTS = {"x": spec(1, SIZE), "slot": spec(1, dtype="int64")}


def state_specs(num_layers):
    return {f"{kind}.{index}": spec(SLOTS, SIZE) for index in range(num_layers) for kind in ("keys", "values")}


def assert_runs_like(module, compiled_model, num_layers):
    """Three calls give the module's results and leave the module's state, to the last bit."""
    program = compiled_model.program
    assert set(program.states) == set(state_specs(num_layers))
    state = {name: torch.zeros(SLOTS, SIZE) for name in program.states}
    expected_state = {name: torch.zeros(SLOTS, SIZE) for name in state_specs(num_layers)}
    for slot in (0, 3, 1):
        x, where = torch.randn(1, SIZE), torch.tensor([slot])
        actual = run_program(program, module, [x, where], list(state.values()))["output"]
        with torch.no_grad():
            expected = module(x, where, list(expected_state.values()))
        assert torch.equal(actual, expected)
    assert all(torch.equal(state[name], expected_state[name]) for name in expected_state)
    unused = {name for name in state if not state[name].any()}
    assert {name.rpartition(".")[2] for name in unused} <= {str(getattr(module, "skipped", ""))}


@pytest.mark.parametrize("num_layers", [2, 3, 12])
def test_unrolled_program_matches_full_model(num_layers):
    model = Model(num_layers)
    compiled_model = compile_module(model, INPUTS, states=state_specs(num_layers))
    assert compiled_model.stacks["layers"].value == 2
    calls = [call for call in compiled_model.program.graphs["graph"].calls if call.module_path]
    assert [call.module_path for call in calls] == [f"layers.{index}" for index in range(num_layers)]
    assert len({call.subprogram for call in calls}) == 1
    assert {name for name in compiled_model.program.weights if name.endswith("up.weight")} == {
        f"layers.{index}.up.weight" for index in range(num_layers)
    }
    assert_runs_like(model, compiled_model, num_layers)


# Layer behavior that depends on its position. Each model has a number of layers, the number to capture, and the reason.


class Indexed(Layer):
    """Changes its input, depending on its index only."""

    def __init__(self, index, change):
        super().__init__(index)
        self.change = change

    def forward(self, x, *rest):
        return super().forward(self.change(x, self.layer_idx), *rest)


def indexed(num_layers, change):
    return Model(num_layers, lambda index: Indexed(index, change))


class Buffered(Layer):
    """Every layer has a separate constant."""

    def __init__(self, index, value=1.0):
        super().__init__(index)
        self.register_buffer("own", torch.full((SIZE,), value), persistent=False)

    def forward(self, x, *rest):
        return super().forward(x + self.own + torch.tensor([0.5]), *rest)


class Tables(Model):
    """The parent gives some layers another table: two kinds of call of one body."""

    def __init__(self, num_layers, is_other):
        super().__init__(num_layers)
        self.is_other = is_other

    def run(self, x, table, slot, states):
        return super().run(x, (table, table.cos()), slot, states)

    def call(self, index, layer, x, tables, *rest):
        return layer(x, tables[self.is_other(index)], *rest)


class OddInput(Model):
    """The parent works between some of the layers."""

    def call(self, index, layer, x, *rest):
        return layer(x * 2 if index % 2 else x, *rest)


class WorksBetween(Model):
    def call(self, index, layer, *arguments):
        return layer(*arguments).tanh()


class Skips(Model):
    skipped = 3

    def call(self, index, layer, x, *rest):
        return x if index == self.skipped else layer(x, *rest)


class Repeats(Model):
    repeated = 2

    def run(self, x, table, slot, states):
        x = super().run(x, table, slot, states)
        return self.layers[self.repeated](x, table, slot, *states[self.repeated][::-1])


class CountsLayers(Model):
    """The computation after the layers depends on their number."""

    def run(self, x, table, slot, states):
        return super().run(x, table, slot, states) * len(self.layers)


class Backwards(Model):
    """Layers use each other's state."""

    def run(self, x, table, slot, states):
        return super().run(x, table, slot, states[::-1])


class TwoResults(Layer):
    def forward(self, x, *rest):
        return super().forward(x, *rest), x.sin()


class KeepsLastDetail(Model):
    """The second result of a layer is used in the last one only."""

    def __init__(self, num_layers):
        super().__init__(num_layers, TwoResults)

    def run(self, x, table, slot, states):
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            x, detail = layer(x, table, slot, values, keys)
        return x + detail


class Collects(Model):
    """One result of a layer is used after the stack."""

    def __init__(self, num_layers, which):
        super().__init__(num_layers)
        self.which = which

    def run(self, x, table, slot, states):
        results = []
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            x = layer(x, table, slot, values, keys)
            results.append(x)
        return x + results[self.which]


class SeesTheInputBefore(Model):
    """Every layer also gets the input of the one before."""

    def run(self, x, table, slot, states):
        before = table
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            x, before = layer(x, before, slot, values, keys), x
        return x


class SharesTheFirstDetail(Model):
    """Every layer after the first gets a result of the first one, as with a bias of relative positions."""

    def __init__(self, num_layers):
        super().__init__(num_layers, TwoResults)

    def run(self, x, table, slot, states):
        first = None
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            x, detail = layer(x, table if first is None else first, slot, values, keys)
            first = detail if first is None else first
        return x


REPEATING = {
    "late index": (lambda: indexed(8, lambda x, i: x * 2 if i == 3 else x), 6, "layers 6 to 7: as layer 5"),
    "odd index": (lambda: indexed(7, lambda x, i: x.sin() if i % 2 else x), 3, "layers 3 to 6: as layers 1 to 2"),
    "odd index, even number": (
        lambda: indexed(8, lambda x, i: x.sin() if i % 2 else x),
        4,
        "layers 4 to 7: as layers 2 to 3",
    ),
    "first index": (lambda: indexed(5, lambda x, i: x.sin() if i else x.sin().sin()), 3, "layers 3 to 4: as layer 2"),
    "equal buffers": (lambda: Model(5, Buffered), 2, "layers 2 to 4: as layer 1"),
    "odd table": (lambda: Tables(5, lambda i: i % 2), 3, "layers 3 to 4: as layers 1 to 2"),
    "windows": (lambda: Tables(26, lambda i: i % 6 // 5), 8, "layers 8 to 25: as layers 2 to 7"),
    "first detail": (lambda: SharesTheFirstDetail(6), 3, "layers 3 to 5: as layer 2"),
    "first result after": (lambda: Collects(5, 0), 2, "layers 2 to 4: as layer 1"),
}


@pytest.mark.full(days=3)
@pytest.mark.parametrize(("make", "num_captured", "reason"), REPEATING.values(), ids=REPEATING)
def test_other_repeating_layers_are_unrolled_correctly(make, num_captured, reason):
    model = make()
    num_layers = len(model.layers)
    compiled_model = compile_module(model, INPUTS, states=state_specs(num_layers))
    result = compiled_model.stacks["layers"]
    assert (result.value, result.reason) == (num_captured, f"{reason}, operator by operator")
    assert_runs_like(model, compiled_model, num_layers)


ORDER = "the layers are not called once each, in order"
FEWER = "with fewer layers the model does something else"
WHOLE = {
    "late index": (
        lambda: indexed(4, lambda x, i: x * 2 if i == 3 else x),
        "layers 1 and 3 differ in aten.mul.Tensor(before:",
    ),
    "every index": (lambda: indexed(4, lambda x, i: x * (1 + i)), "layers 1 and 2 differ in aten.mul.Tensor(before:"),
    "other buffers": (lambda: Model(4, lambda i: Buffered(i, float(i))), "layers 1 and 2 differ in aten.add"),
    "odd input": (lambda: OddInput(8), "operators run between the layers"),
    "between": (lambda: WorksBetween(4), "operators run between the layers"),
    "skips": (lambda: Skips(5), ORDER),
    "skips the last": (lambda: Skips(4), ORDER),
    "repeats": (lambda: Repeats(4), ORDER),
    "repeats the last": (lambda: Repeats(3), "layers 1 and 2 differ in aten.index_copy_"),
    "counts": (lambda: CountsLayers(4), f"{FEWER}: aten.mul.Tensor(before:"),
    "backwards": (lambda: Backwards(4), "layers 1 and 2 differ in aten.index_copy_"),
    "middle result": (lambda: Collects(5, 2), "to capture less fails (IndexError"),
    "last but one": (lambda: Collects(5, -2), f"{FEWER}: aten.add.Tensor(before:"),
    "two back": (lambda: SeesTheInputBefore(4), "layers 1 and 2 differ in aten.mul.Tensor"),
    "last detail": (lambda: KeepsLastDetail(4), "layers 1 and 3 differ in which results are read"),
}


@pytest.mark.full(days=3)
@pytest.mark.parametrize(("make", "reason"), WHOLE.values(), ids=WHOLE)
def test_non_repeating_layers_are_captured_whole(make, reason):
    model = make()
    num_layers = len(model.layers)
    compiled_model = compile_module(model, INPUTS, states=state_specs(num_layers))
    assert compiled_model.stacks["layers"].value == num_layers and reason in compiled_model.stacks["layers"].reason
    assert_runs_like(model, compiled_model, num_layers)


class TwoStreams(nn.Module):
    """A layer of an image transformer: two streams in and out; the last one may leave the second as it is."""

    def __init__(self, is_last):
        super().__init__()
        self.of_x = nn.Linear(SIZE, SIZE)
        self.of_y = None if is_last else nn.Linear(SIZE, SIZE)

    def forward(self, x, y):
        return torch.tanh(self.of_x(x + y)), y if self.of_y is None else torch.tanh(self.of_y(x - y))


class Streams(nn.Module):
    def __init__(self, num_layers, has_special_last):
        super().__init__()
        self.layers = nn.ModuleList(TwoStreams(has_special_last and i == num_layers - 1) for i in range(num_layers))

    def forward(self, x, y):
        for layer in self.layers:
            x, y = layer(x, y)
        return x.cos()


@pytest.mark.parametrize("has_special_last", [False, True])
def test_last_layer_of_other_kind_stays_at_the_end(has_special_last):
    """Flux reads one result of its last layer, and that of Stable Diffusion 3 has fewer weights."""
    model, inputs = Streams(7, has_special_last), {"x": spec(2, SIZE), "y": spec(2, SIZE)}
    compiled_model = compile_module(model, inputs)
    result, program = compiled_model.stacks["layers"], compiled_model.program
    assert (result.value, result.reason) == (3, "layers 2 to 5: as layer 1, operator by operator")
    calls = [call for call in program.graphs["graph"].calls if call.module_path]
    assert [call.module_path for call in calls] == [f"layers.{index}" for index in range(7)]
    assert len({call.subprogram for call in calls}) == 2
    assert set(program.weights) == set(dict(model.named_parameters())) - (
        set() if has_special_last else {"layers.6.of_y.weight", "layers.6.of_y.bias"}
    )
    x, y = torch.randn(2, SIZE), torch.randn(2, SIZE)
    with torch.no_grad():
        assert torch.equal(run_program(program, model, [x, y], [])["output"], model(x, y))


def test_one_module_called_as_every_layer():
    layer = Layer(0)
    model = Model(4, lambda index: layer)
    compiled_model = compile_module(model, INPUTS, states=state_specs(4))
    assert compiled_model.stacks["layers"].value == 4 and ORDER in compiled_model.stacks["layers"].reason
    assert {name for name in compiled_model.program.weights if "up" in name} == {
        "layers.0.up.weight",
        "layers.0.up.bias",
    }
    assert_runs_like(model, compiled_model, 4)


def test_two_stacks_of_other_lengths():
    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = Model(5), Model(3)

        def forward(self, x, slot):
            def states(num_layers):
                return [torch.zeros(SLOTS, SIZE) for _ in range(2 * num_layers)]

            return self.right(self.left(x, slot, states(len(self.left.layers))), slot, states(len(self.right.layers)))

    model = Double()
    compiled_model = compile_module(model, INPUTS)
    x, slot = torch.randn(1, SIZE), torch.tensor([2])
    assert torch.equal(run_program(compiled_model.program, model, [x, slot])["output"], model(x, slot))


def short_program(num_layers, **changes):
    """A program whose stack is captured short, and the stack for the pass."""
    captured = capture(Model(num_layers), name="graph", inputs=INPUTS, states=state_specs(num_layers))
    return outline(captured), dataclasses.replace(captured.stacks[0], **changes)


def test_program_without_captured_layers_is_not_unrolled():
    program, stack = short_program(6, captured=Choice(value=3, reason="test"))
    with pytest.raises(NotUniformError, match="the layers are not consecutive calls"):
        stretch(program, "graph", stack)
    program, stack = short_program(6, path="elsewhere")
    with pytest.raises(NotUniformError, match="the layers are not consecutive calls"):
        stretch(program, "graph", stack)
    program, stack = short_program(6)
    graph = program.graphs["graph"]
    last = dataclasses.replace(graph.calls[-1], module_path=stack.layers[0])
    scattered = {"graph": dataclasses.replace(graph, calls=(*graph.calls[:-1], last))}
    with pytest.raises(NotUniformError, match="the layers are not consecutive calls"):
        stretch(dataclasses.replace(program, graphs=scattered), "graph", stack)
