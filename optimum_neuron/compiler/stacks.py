"""Stacks of equal layers: find them, and shorten them while a model is captured.

A decoder of 80 equal layers needs 2 of them captured: the second proves that the first repeats. `find_stacks`
looks at module structure only; whether the captured bodies are equal too is proved later, by
`passes/outline.py`, on the graph. A stack whose layers differ in any attribute, or share weights in another way
than all of them alike, is captured whole. What a late layer does only because of its position (`if index == 3`)
is in no attribute and not in the first two graphs: it goes unseen here, and validation has to find it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core import Choice

if TYPE_CHECKING:
    from torch import nn

NUM_CAPTURED_LAYERS = 2
"""Layers kept of an equal stack: one to repeat, one to prove that it repeats."""

_OWN_INDEX = ("layer_idx", "layer_index", "layer_id")
"""Attributes in which equal layers may differ: their own position."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """A `ModuleList` of layers inside a model."""

    path: str
    """Module path, for example "model.layers"."""
    num_layers: int
    """Layers in the full model."""
    captured: Choice[int]
    """Layers to capture, and why that many."""


def find_stacks(module: nn.Module) -> tuple[Stack, ...]:
    """Return the outermost `ModuleList`s of one layer class, with the number of layers to capture.

    Example:
        ```python
        import torch
        from optimum_neuron.compiler.stacks import find_stacks

        model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(8))})
        (stack,) = find_stacks(model)
        assert (stack.path, stack.num_layers, stack.captured.value) == ("layers", 8, 2)
        ```
    """
    from torch import nn

    stacks: list[Stack] = []
    for path, child in module.named_modules():
        inside = any(path.startswith(stack.path + ".") for stack in stacks)
        if inside or not isinstance(child, nn.ModuleList) or len(child) < 2:
            continue
        if len({type(layer) for layer in child}) == 1:
            stacks.append(Stack(path=path, num_layers=len(child), captured=_num_to_capture(child)))
    return tuple(stacks)


def _num_to_capture(layers: nn.ModuleList) -> Choice[int]:
    total = len(layers)
    if total <= NUM_CAPTURED_LAYERS:
        return Choice(value=total, reason=f"{total} layers are captured whole")
    first = _signature(layers[0])
    for index in range(1, total):
        other = _signature(layers[index])
        if other != first:
            name = next(name for name in sorted({*first, *other}) if first.get(name) != other.get(name))
            name = name.removeprefix(".")
            return Choice(value=total, reason=f"layers 0 and {index} differ in {name}: captured whole")
    if shared := _unevenly_shared(layers):
        return Choice(value=total, reason=f"some layers share {shared} and others do not: captured whole")
    return Choice(value=NUM_CAPTURED_LAYERS, reason=f"{total} layers have equal attributes and shapes")


def _signature(layer: nn.Module) -> dict[str, Any]:
    """Everything of a layer that can shape its graph, by dotted name."""
    from torch import nn

    internal = vars(nn.Module()).keys() - {"training"}
    facts: dict[str, Any] = {}
    first_names: dict[int, str] = {}
    for path, module in layer.named_modules():
        facts[f"{path}.class"] = type(module)
        tensors = (
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False),
        )
        for name, tensor in tensors:
            facts[f"{path}.{name}"] = (_fact(tensor), first_names.setdefault(id(tensor), f"{path}.{name}"))
        for name, value in vars(module).items():
            if name not in internal and name not in _OWN_INDEX:
                facts[f"{path}.{name}"] = _fact(value)
    return facts


def _fact(value: Any) -> Any:
    """What of an attribute can be compared between layers; objects compare by their own equality."""
    import torch
    from torch import nn

    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype)
    if isinstance(value, nn.Module):
        return type(value)
    if isinstance(value, (list, tuple)):
        return [_fact(item) for item in value]
    if isinstance(value, dict):
        return {key: _fact(item) for key, item in value.items()}
    if isinstance(value, functools.partial):
        return [value.func, _fact(value.args), _fact(value.keywords)]
    if isinstance(value, types.MethodType):
        return value.__func__
    return value.tolist() if hasattr(value, "tolist") else value


def _unevenly_shared(layers: nn.ModuleList) -> str | None:
    """Name of a parameter that several layers share, but not all of them under the same names."""
    users: dict[int, list[tuple[int, str]]] = {}
    for index, layer in enumerate(layers):
        for name, parameter in layer.named_parameters(remove_duplicate=False):
            users.setdefault(id(parameter), []).append((index, name))
    for found in users.values():
        indices, names = {index for index, _ in found}, {name for _, name in found}
        if len(indices) > 1 and (len(indices) < len(layers) or len(found) != len(indices) * len(names)):
            return min(names)
    return None


@contextlib.contextmanager
def shortened(module: nn.Module, stacks: tuple[Stack, ...]) -> Iterator[None]:
    """Cut the stacks to their captured number of layers, and put the layers back afterwards."""
    removed: list[tuple[nn.ModuleList, list[tuple[str, nn.Module]]]] = []
    try:
        for stack in stacks:
            layers = module.get_submodule(stack.path)
            items = list(layers._modules.items())[stack.captured.value :]
            removed.append((layers, items))
            for key, _ in items:
                del layers._modules[key]
        yield
    finally:
        for layers, items in removed:
            layers._modules.update(items)
