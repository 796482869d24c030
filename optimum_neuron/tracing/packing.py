"""Outputs that `torch.jit.trace` cannot return, such as a dictionary of tensors and tuples, packed in TorchScript.

A recorded module may return tensors, tuples, and lists and dictionaries of one kind. Everything else is written out as
the source of a TorchScript function, in which the values of lists and dictionaries have type `Any`. It does not depend
on NEFFs.

    >>> from optimum_neuron.tracing.packing import is_traceable
    >>> is_traceable({"logits": 0, "attentions": 1}), is_traceable({"logits": 0, "attentions": (1, 2)})
    (True, False)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from ..errors import ConfigError
from .structure import Skeleton


class Packed(nn.Module):
    """Calls a model that returns a flat list, and packs its results; `packed` defines the call."""

    def __init__(self, model: torch.jit.ScriptModule) -> None:
        super().__init__()
        self.model = model


def is_traceable(skeleton: Skeleton) -> bool:
    """Return whether `torch.jit.trace` can return such a structure."""
    if isinstance(skeleton, tuple):
        return all(map(is_traceable, skeleton))
    if isinstance(skeleton, list):
        return bool(skeleton) and all(isinstance(item, int) for item in skeleton)
    if not isinstance(skeleton, dict):
        return True
    values = list(skeleton.values())
    flat = all(isinstance(item, int) for value in values for item in (value if isinstance(value, tuple) else [value]))
    kinds = {len(value) if isinstance(value, tuple) else -1 for value in values}
    return flat and len(kinds) == 1 and all(isinstance(key, str) for key in skeleton)


def packed(model: torch.jit.ScriptModule, names: Sequence[str], skeleton: Skeleton) -> torch.jit.ScriptModule:
    """Wrap a recorded model with these parameters that returns a flat list, so that it returns the structure.

    Raises:
        ConfigError: a dictionary has keys that are neither all texts nor all whole numbers.
    """
    module = torch.jit.script(Packed(model.eval()))
    kinds = [argument.type.annotation_str for argument in model.forward.schema.arguments[1:]]
    parameters = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
    lines: list[str] = []
    result = expression_of(skeleton, lines, (f"part{index}" for index in itertools.count()))
    body = "\n    ".join([f"flat = self.model({', '.join(names)})", *lines, f"return {result}"])
    module.define(f"def forward(self, {parameters}):\n    {body}\n")
    return module


def expression_of(skeleton: Skeleton, lines: list[str], names: Iterator[str]) -> str:
    """TorchScript for a structure; lists and dictionaries are built by lines before it."""
    if isinstance(skeleton, tuple):
        parts = [expression_of(part, lines, names) for part in skeleton]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(skeleton, list):
        parts, name = [expression_of(part, lines, names) for part in skeleton], next(names)
        lines += [f"{name}: List[Any] = []", *(f"{name}.append({part})" for part in parts)]
        return name
    if isinstance(skeleton, dict):
        items, name = [(key, expression_of(part, lines, names)) for key, part in skeleton.items()], next(names)
        lines += [f"{name}: Dict[{_key_type(skeleton)}, Any] = {{}}"]
        lines += [f"{name}[{key!r}] = {part}" for key, part in items]
        return name
    return f"flat[{skeleton}]"


def _key_type(skeleton: dict[object, Skeleton]) -> str:
    kinds = {type(key) for key in skeleton}
    if kinds <= {str}:
        return "str"
    if kinds == {int}:
        return "int"
    keys = [repr(key) for key in skeleton]
    message = f"The keys of an output dictionary are neither strings nor integers only: {', '.join(keys)}."
    raise ConfigError(message, hint="Return a dictionary with keys of one of these types, or a tuple.", keys=keys)
