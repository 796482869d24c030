"""Stacks of layers: find them, see how they repeat, and shorten them while a model is captured.

A decoder of 80 equal layers needs 2 of them captured, one with five sliding windows before each full attention needs
one period more than its first layer, and a stack whose last layer is special, as in Flux and Stable Diffusion 3, needs
that one too. Repetition is decided on the computation of the layers, not on their code:
`record.py` runs the whole model once on fakes and the shortened one after it, and the whole must be the short one with
layers added, operator by operator. A layer that does something else because of its position, an attribute, or the
number of layers is seen there. Only of this package's own decoders equal attributes are enough.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import nn

from ..base.core import Choice
from .record import Segment

Recording = Callable[[tuple["Stack", ...]], list["Segment"]]
"""Runs the module with the captured layers of these stacks, and returns its record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """A `ModuleList` of layers inside a model."""

    path: str
    """Module path, for example "model.layers"."""
    num_layers: int
    """Layers in the full model."""
    captured: Choice[int]
    """Layers to capture, and why that many: the first ones, and the last `num_last` of the stack."""
    period: int = 1
    """The last `period` of the first captured layers are the ones that the rest of the stack repeats."""
    num_last: int = 0
    """Layers at the end that repeat none."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Paths of all layers."""
        return tuple(f"{self.path}.{index}" for index in range(self.num_layers))

    @property
    def num_first(self) -> int:
        """Captured layers at the beginning."""
        return self.captured.value - self.num_last

    @property
    def end(self) -> int:
        """The first layer behind those that repeat."""
        return self.num_layers - self.num_last

    @property
    def captured_layers(self) -> tuple[str, ...]:
        """Paths of the captured layers."""
        return self.layers[: self.num_first] + self.layers[self.end :]

    def alike(self, path: str) -> tuple[str, ...]:
        """Paths of the same module in every layer that one of the captured layers stands for, its own first."""
        index, _, rest = path.removeprefix(f"{self.path}.").partition(".")
        repeats = range(self.num_first - self.period, self.end)
        if not path.startswith(f"{self.path}.") or int(index) not in repeats:
            return (path,)
        return tuple(f"{self.path}.{layer}.{rest}".rstrip(".") for layer in range(int(index), self.end, self.period))

    def whole(self, reason: str) -> Stack:
        """The same stack, captured with all its layers."""
        return dataclasses.replace(self, captured=Choice(value=self.num_layers, reason=f"captured whole: {reason}"))


def find_stacks(module: nn.Module, *, keep_states: bool = False) -> tuple[Stack, ...]:
    """Return the outermost `ModuleList`s of layers, to be captured whole.

    Args:
        keep_states: It is a decoder, whose layers may be of several classes, as in Jamba. In other models, such a list
            may be anything, and only lists of one class are layers.

    Example:
        ```python
        import torch
        from optimum_neuron.compiler.stacks import find_stacks

        model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(8))})
        (stack,) = find_stacks(model)
        assert (stack.path, stack.num_layers, stack.captured.value) == ("layers", 8, 8)
        ```
    """
    stacks: list[Stack] = []
    for path, child in module.named_modules():
        inside = any(path.startswith(stack.path + ".") for stack in stacks)
        if inside or not isinstance(child, nn.ModuleList) or len(child) < 2:
            continue
        num_classes = len({type(layer) for layer in child})
        if num_classes == 1 or (keep_states and num_classes < len(child)):
            whole = Choice(value=len(child), reason="captured whole")
            stacks.append(Stack(path=path, num_layers=len(child), captured=whole))
    return tuple(stacks)


def repeating(
    stacks: tuple[Stack, ...],
    recording: Recording,
    *,
    keep_states: bool = False,
    kinds: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> tuple[Stack, ...]:
    """Return the stacks with the fewest layers to capture, proved on records of the whole and of the short model.

    A layer may find its states by its index, so the last layer of a model with states is never captured as layer 2.

    Args:
        recording: records the model with some of their layers.
        kinds: stacks whose equal layers are known: for each layer the first one that is equal to it. No record is made
            if this is known for all stacks, and layers repeat.
    """
    if all(stack.num_layers <= 2 for stack in stacks):
        return stacks
    # A layer reads other results of another kind of layer.
    pairs = {path: [*zip([None, *own], own, strict=False)] for path, own in kinds.items()}
    known = [_shortest(stack, pairs[stack.path], 0, "in every attribute") for stack in stacks if stack.path in pairs]
    if len(known) == len(stacks) and None not in known:
        return tuple(stack for stack in known if stack is not None)
    whole = recording(stacks)
    short = tuple(_fewest(stack, whole, max_last=0 if keep_states else 1) for stack in stacks)
    left_out = {path for stack in short for path in stack.layers[stack.num_first : stack.end]}
    if left_out:
        expected = [segment for segment in whole if segment.place not in left_out]
        if change := _difference(expected, recording(short)):
            return tuple(stack.whole(f"with fewer layers the model does something else: {change}") for stack in stacks)
    return short


def _fewest(stack: Stack, whole: Sequence[Segment], max_last: int) -> Stack:
    """The shortest beginning of a stack that ends with `period` layers repeated by all later ones.

    At least one layer comes before these: it shows what a layer reads from the previous one. The beginning ends with
    the same kind of layer as the layers that repeat, since the code after these reads that one's results.
    """
    total, layers, places = stack.num_layers, stack.layers, tuple(segment.place for segment in whole)
    if total <= 2:
        return stack
    if tuple(place for place in places if place in layers) != layers:
        return stack.whole("the layers are not called once each, in order")
    start = places.index(layers[0])
    if places[start : start + total] != layers:
        return stack.whole("operators run between the layers")
    layers_whole = whole[start : start + total]
    texts = [(segment.operators, segment.read) for segment in layers_whole]
    kinds = [texts.index(text) for text in texts]
    if (short := _shortest(stack, kinds, max_last, "operator by operator")) is not None:
        return short
    other = next(index for index in range(2, total) if kinds[index] != kinds[1])
    return stack.whole(f"layers 1 and {other} differ in {_layer_difference(layers_whole[1], layers_whole[other])}")


def _shortest(stack: Stack, kinds: Sequence[object], max_last: int, evidence: str) -> Stack | None:
    """The shortest beginning for layers of some kinds; None if no layers repeat."""
    total = stack.num_layers
    for captured, num_last in itertools.product(range(2, total), range(max_last + 1)):
        num_first, end = captured - num_last, total - num_last
        for period in range(1, num_first):
            first = num_first - period
            if (end - num_first) % period == 0 and kinds[first : end - period] == kinds[num_first:end]:
                reason = f"{_span(num_first, end)}: as {_span(first, num_first)}, {evidence}"
                choice = Choice(value=captured, reason=reason)
                return dataclasses.replace(stack, captured=choice, period=period, num_last=num_last)
    return None


def _layer_difference(left: Segment, right: Segment) -> str:
    return (
        "which results are read"
        if left.operators == right.operators
        else _first_difference(left.operators, right.operators)
    )


def _span(start: int, end: int) -> str:
    return f"layer {start}" if end - start == 1 else f"layers {start} to {end - 1}"


def _difference(expected: Sequence[Segment], actual: Sequence[Segment]) -> str | None:
    """First difference of two records, or None."""
    for left, right in itertools.zip_longest(expected, actual):
        if left is None or right is None or left.place != right.place:
            return "its layers are called in another order"
        if left.operators != right.operators:
            return f"{_first_difference(left.operators, right.operators)} in {left.place}"
    return None


def _first_difference(left: Sequence[str], right: Sequence[str]) -> str:
    """The first line of `right` that is not the same in `left`."""
    pairs = itertools.zip_longest(left, right, fillvalue="nothing")
    return next(b for a, b in pairs if a != b)


@contextlib.contextmanager
def shortened(module: nn.Module, stacks: tuple[Stack, ...]) -> Iterator[None]:
    """Cut the stacks to their captured number of layers, and put the layers back afterwards."""
    whole: list[tuple[nn.ModuleList, dict[str, Any]]] = []
    try:
        for stack in stacks:
            layers = module.get_submodule(stack.path)
            whole.append((layers, dict(layers._modules)))
            for key in list(layers._modules)[stack.num_first : stack.end]:
                del layers._modules[key]
        yield
    finally:
        for layers, items in whole:
            layers._modules.clear()
            layers._modules.update(items)
