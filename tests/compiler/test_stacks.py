"""Choice of the stacks to capture short, and restoring of their layers."""

import dataclasses

import pytest
from torch import nn

from optimum_neuron.base.core import Choice
from optimum_neuron.compiler import find_stacks, repeating
from optimum_neuron.compiler.record import Segment
from optimum_neuron.compiler.stacks import Stack, shortened


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)


def linears(count):
    return Model(nn.Linear(4, 4) for _ in range(count))


def test_list_of_one_class_is_a_stack():
    (stack,) = find_stacks(linears(5))
    assert (stack.path, stack.num_layers, stack.captured.value, stack.period) == ("layers", 5, 5, 1)
    assert stack.layers == ("layers.0", "layers.1", "layers.2", "layers.3", "layers.4")


@pytest.mark.parametrize(
    ("path", "alike"),
    [
        ("layers.0.mlp", [0]),
        ("layers.1", [1, 3, 5]),
        ("layers.2.mlp.act", [2, 4]),
        ("head.layers.1", None),
        ("layers", None),
    ],
)
def test_captured_layer_represents_its_repeats(path, alike):
    stack = Stack(path="layers", num_layers=6, captured=Choice(value=3, reason=""), period=2)
    rest = ".".join(path.split(".")[2:])
    assert stack.alike(path) == (
        (path,) if alike is None else tuple(f"layers.{layer}.{rest}".rstrip(".") for layer in alike)
    )


@pytest.mark.parametrize(("layer", "alike"), [(0, [0]), (1, [1, 2, 3, 4]), (5, [5])])
def test_layer_at_the_end_represents_itself(layer, alike):
    stack = Stack(path="layers", num_layers=6, captured=Choice(value=3, reason=""), num_last=1)
    assert stack.alike(f"layers.{layer}.mlp") == tuple(f"layers.{index}.mlp" for index in alike)
    assert stack.captured_layers == ("layers.0", "layers.1", "layers.5")


def test_layer_of_whole_stack_represents_itself():
    (stack,) = find_stacks(linears(3))
    assert [stack.alike(f"layers.{layer}") for layer in range(3)] == [("layers.0",), ("layers.1",), ("layers.2",)]


@pytest.mark.parametrize("num_layers", [0, 1])
def test_single_layer_is_not_a_stack(num_layers):
    assert find_stacks(linears(num_layers)) == ()


def test_mixed_layer_classes_are_a_stack_of_decoders_only():
    mixed = Model([nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)])
    assert find_stacks(mixed) == ()
    assert [stack.num_layers for stack in find_stacks(mixed, keep_states=True)] == [3]
    assert find_stacks(Model([nn.Linear(4, 4), nn.LayerNorm(4)]), keep_states=True) == ()


def test_outermost_nested_list_and_all_sibling_lists_are_stacks():
    model = Model(linears(2) for _ in range(4))
    model.layers_after = nn.ModuleList(nn.LayerNorm(2) for _ in range(3))
    assert {stack.path: stack.num_layers for stack in find_stacks(model)} == {"layers": 4, "layers_after": 3}


# Repetition of a stack, on hand-written records: one letter is one layer's computation.


def stack_of(num_layers, path="layers"):
    return Stack(path=path, num_layers=num_layers, captured=Choice(value=num_layers, reason="not looked at"))


def segments(kinds, path="layers"):
    return [Segment(place=f"{path}.{index}", operators=[f"aten.{kind}(here:0)"]) for index, kind in enumerate(kinds)]


HEAD, TAIL = Segment(place="between 0", operators=["head()"]), Segment(place="between 1", operators=["tail()"])


def chosen(kinds, keep_states=False):
    """The stack of a model whose layers are of these kinds, with the records of the whole and the short model."""

    def recording(stacks):
        layers = {segment.place: segment for segment in segments(kinds)}
        return [HEAD, *(layers[path] for path in stacks[0].captured_layers), TAIL]

    (stack,) = repeating((stack_of(len(kinds)),), recording, keep_states=keep_states)
    return stack


@pytest.mark.parametrize(
    ("kinds", "captured", "period", "reason"),
    [
        ("abbb", 2, 1, "layers 2 to 3: as layer 1"),
        ("abb", 2, 1, "layer 2: as layer 1"),
        ("a" + 79 * "b", 2, 1, "layers 2 to 79: as layer 1"),
        ("aabbbbb", 3, 1, "layers 3 to 6: as layer 2"),
        ("abcbcbc", 3, 2, "layers 3 to 6: as layers 1 to 2"),
        ("abcbcb", 4, 2, "layers 4 to 5: as layers 2 to 3"),
        ("a" + 4 * "sssssf" + "s", 8, 6, "layers 8 to 25: as layers 2 to 7"),
        ("abbbcbbbb", 6, 1, "layers 6 to 8: as layer 5"),
    ],
)
def test_fewest_repeating_layers_are_captured(kinds, captured, period, reason):
    stack = chosen(kinds)
    assert (stack.captured.value, stack.period) == (captured, period)
    assert stack.captured.reason == f"{reason}, operator by operator"


@pytest.mark.parametrize(
    ("kinds", "captured", "period", "reason"),
    [
        ("abbc", 3, 1, "layer 2: as layer 1"),
        ("abbbbc", 3, 1, "layers 2 to 4: as layer 1"),
        ("abcbcbcd", 4, 2, "layers 3 to 6: as layers 1 to 2"),
    ],
)
def test_other_last_layer_is_captured_too(kinds, captured, period, reason):
    stack = chosen(kinds)
    assert (stack.captured.value, stack.period, stack.num_last) == (captured, period, 1)
    assert stack.captured.reason == f"{reason}, operator by operator"
    assert chosen(kinds, keep_states=True).captured.value == len(kinds)


def test_last_layer_with_fewer_results_is_another_one():
    records = segments("abbbb")
    for segment in records[:-1]:
        segment.read.update({"0", "1"})
    (stack,) = repeating((stack_of(5),), lambda stacks: [HEAD, *_captured(records, stacks[0]), TAIL])
    assert (stack.captured.value, stack.num_last) == (3, 1)


def _captured(records, stack):
    return [segment for segment in records if segment.place in stack.captured_layers]


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ("abcd", "captured whole: layers 1 and 2 differ in aten.c(here:0)"),
        ("abcb", "captured whole: layers 1 and 2 differ in aten.c(here:0)"),
        ("ab", "not looked at"),
    ],
)
def test_non_repeating_layers_are_all_captured(kinds, reason):
    stack = chosen(kinds)
    assert (stack.captured.value, stack.captured.reason) == (len(kinds), reason)


ORDER = "captured whole: the layers are not called once each, in order"
LAYERS = segments("abbb")


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ([HEAD, TAIL], ORDER),
        ([HEAD, *LAYERS[:2], LAYERS[3], TAIL], ORDER),
        ([HEAD, *LAYERS[:3], TAIL], ORDER),
        ([HEAD, *LAYERS, LAYERS[3], TAIL], ORDER),
        ([HEAD, *LAYERS[::-1], TAIL], ORDER),
        ([HEAD, *LAYERS[:3], TAIL, LAYERS[3]], "captured whole: operators run between the layers"),
    ],
    ids=["none", "skipped", "last skipped", "repeated", "backwards", "between"],
)
def test_layers_called_out_of_sequence_are_all_captured(whole, reason):
    (stack,) = repeating((stack_of(4),), lambda stacks: whole)
    assert (stack.captured.value, stack.captured.reason) == (4, reason)


def changed(segment, *operators):
    return dataclasses.replace(segment, operators=list(operators))


@pytest.mark.parametrize(
    ("short", "where"),
    [
        ([changed(HEAD, "other()"), *LAYERS[:2], TAIL], "other() in between 0"),
        ([HEAD, LAYERS[0], changed(LAYERS[1], "other()"), TAIL], "other() in layers.1"),
        ([HEAD, *LAYERS[:2], changed(TAIL, "tail()", "more()")], "more() in between 1"),
        ([HEAD, *LAYERS[:2], changed(TAIL)], "nothing in between 1"),
        ([HEAD, *LAYERS[:2]], "its layers are called in another order"),
        ([HEAD, LAYERS[0], TAIL, LAYERS[1]], "its layers are called in another order"),
    ],
)
def test_depth_dependent_model_is_captured_whole(short, where):
    def recording(stacks):
        return short if stacks[0].captured.value == 2 else [HEAD, *LAYERS, TAIL]

    (stack,) = repeating((stack_of(4),), recording)
    reason = f"captured whole: with fewer layers the model does something else: {where}"
    assert (stack.captured.value, stack.captured.reason) == (4, reason)


def test_each_stack_has_its_own_count():
    left, right = segments("abbb", "left"), segments("acdcd", "right")

    def recording(stacks):
        return [HEAD, *left[: stacks[0].captured.value], TAIL, *right[: stacks[1].captured.value]]

    stacks = repeating((stack_of(4, "left"), stack_of(5, "right")), recording)
    assert [(stack.captured.value, stack.period) for stack in stacks] == [(2, 1), (3, 2)]


def test_short_stacks_are_not_traced():
    stacks = (stack_of(2), stack_of(2, "other"))
    assert repeating(stacks, recording=None) == stacks and repeating((), recording=None) == ()


# Shortening.


def short_stacks(model, captured=2):
    return tuple(
        dataclasses.replace(stack, captured=Choice(value=captured, reason="test")) for stack in find_stacks(model)
    )


def test_shortened_stack_is_restored_in_order():
    model = linears(12)
    before = list(model.layers)
    with shortened(model, short_stacks(model)):
        assert list(model.layers) == before[:2]
        assert [name for name, _ in model.named_parameters()][-1] == "layers.1.bias"
    assert list(model.layers) == before and list(model.layers._modules) == [str(index) for index in range(12)]


def test_shortened_stack_keeps_its_last_layer():
    model = linears(6)
    before = list(model.layers)
    (stack,) = short_stacks(model, captured=3)
    with shortened(model, (dataclasses.replace(stack, num_last=1),)):
        assert list(model.layers) == [before[0], before[1], before[5]]
        assert [name for name, _ in model.named_parameters()][-1] == "layers.5.bias"
    assert list(model.layers) == before and list(model.layers._modules) == [str(index) for index in range(6)]


def test_shortened_restores_after_errors():
    model = linears(4)
    stacks, before = short_stacks(model), list(model.layers)
    with pytest.raises(ZeroDivisionError), shortened(model, stacks):
        raise ZeroDivisionError
    assert list(model.layers) == before
    elsewhere = short_stacks(nn.ModuleDict({"other": nn.ModuleList(nn.Linear(4, 4) for _ in range(3))}))
    with pytest.raises(AttributeError), shortened(model, (*stacks, *elsewhere)):
        pass
    assert list(model.layers) == before
