"""Quantized tensors made of a plain checkpoint: the names of a program's quantized weights are recipes.

A program that was compiled with `quantization` asks for tensors such as "model.norm.weight:int8.scale": the tensor of
the checkpoint, the scheme, and the part. Any checkpoint of the architecture has them behind `QuantizedSource`, so a
fine-tuned one is bound without compiling. An exported folder has these tensors under these names.

    >>> recipe_of("model.up.weight:int4-g32.scale")
    Recipe(tensor='model.up.weight', scheme=Scheme(kind='int4', group_size=32, has_zeros=False), part='scale')
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..core import TensorSpec
from .checkpoint import TensorSource
from .gguf import GgufSource
from .published import PublishedSource
from .schemes import Part, Scheme

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a tensor is made."""

    tensor: str
    """Name in the checkpoint."""
    scheme: Scheme
    part: Part

    @property
    def name(self) -> str:
        """Name of the tensor that is made."""
        return f"{self.tensor}:{self.scheme.name}" + ("" if self.part == "values" else f".{self.part}")


def recipe_of(name: str) -> Recipe | None:
    """Return the recipe that a name is, or None for a tensor of the checkpoint itself."""
    tensor, separator, recipe = name.rpartition(":")
    if not separator:
        return None
    scheme, _, part = recipe.partition(".")
    return Recipe(tensor, Scheme.parse(scheme), part or "values")  # type: ignore[arg-type]


def plain_names(names: Iterable[str]) -> list[str]:
    """Return the tensors of the checkpoint behind names, each once."""
    return list(dict.fromkeys(name.rpartition(":")[0] or name for name in names))


class QuantizedSource:
    """A checkpoint with the quantized tensors that a program asks for."""

    def __init__(self, checkpoint: TensorSource, names: Collection[str]) -> None:
        self._checkpoint = checkpoint
        available = checkpoint.specs
        recipes = {name: recipe for name in names if name not in available and (recipe := recipe_of(name))}
        self._recipes = {name: one for name, one in recipes.items() if _is_fit(one, available.get(one.tensor))}
        self._last: tuple[tuple[str, Scheme], dict[Part, torch.Tensor]] | None = None
        self._small: dict[Recipe, torch.Tensor] = {}

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._checkpoint.origin

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of those with a recipe too."""
        specs = self._checkpoint.specs
        made = {
            name: one.scheme.specs(specs[one.tensor].shape[0], math.prod(specs[one.tensor].shape[1:]))[one.part]
            for name, one in self._recipes.items()
        }
        return specs | made

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, and whether that took a copy."""
        import torch

        if not any(name in self._recipes for name in names):
            return self._checkpoint.join(names)
        made = [self._make(self._recipes[name]) for name in names]
        return (made[0] if len(made) == 1 else torch.cat(made)), True

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take."""
        self._checkpoint.drop_pages(plain_names(names))

    def _make(self, recipe: Recipe) -> torch.Tensor:
        """Make all parts of a matrix at once: scales are kept, and of the values those of the last matrix."""
        if recipe in self._small:
            return self._small[recipe]
        key = (recipe.tensor, recipe.scheme)
        if self._last is None or self._last[0] != key:
            checkpoint = self._checkpoint
            stored = checkpoint.parts(*key) if isinstance(checkpoint, (PublishedSource, GgufSource)) else None
            parts = stored or recipe.scheme.quantize(checkpoint.join([recipe.tensor])[0])
            self._last = (key, parts)
            others = {Recipe(*key, part): tensor for part, tensor in parts.items() if part != "values"}
            self._small |= others
        return self._last[1][recipe.part]


def _is_fit(recipe: Recipe, spec: TensorSpec | None) -> bool:
    """Return whether there is a matrix that the recipe can be applied to."""
    return spec is not None and len(spec.shape) == 2 and recipe.scheme.fits(spec.shape[1])
