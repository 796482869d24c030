"""Quantized tensors made of a plain checkpoint: the names of a program's quantized weights are recipes.

A program that was compiled with `quantization` asks for tensors such as "model.norm.weight:int8.scale": the tensor of
the checkpoint, the scheme, and the part. Any checkpoint of the architecture has them behind `QuantizedSource`, so a
fine-tuned one is bound without compiling. An exported folder has these tensors under these names.

    >>> recipe = recipe_of("model.up.weight:int4-g32.scale")
    >>> recipe.tensor, recipe.scheme.name, recipe.part
    ('model.up.weight', 'int4-g32', 'scale')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..base.core import TensorSpec
from .checkpoint import TensorSource, plain_names
from .gguf import GgufSource
from .published import PublishedSource
from .published_experts import PublishedExperts
from .schemes import Part, Scheme

if TYPE_CHECKING:
    import torch


STORED = (PublishedSource, PublishedExperts, GgufSource)
"""Sources that may have the numbers of a scheme."""

_TRANSPOSED = "-t"
"""End of the scheme in the name of a recipe whose tensor has inputs before outputs."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a tensor is made."""

    tensor: str
    scheme: Scheme
    part: Part
    is_transposed: bool = False
    """The checkpoint has inputs before outputs; what is made has outputs first."""

    @property
    def name(self) -> str:
        """Name of the tensor that is made."""
        order, part = _TRANSPOSED * self.is_transposed, "" if self.part == "values" else f".{self.part}"
        return f"{self.tensor}:{self.scheme.name}{order}{part}"

    def shape_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape [..., outputs, inputs] of a tensor of the checkpoint."""
        return (*shape[:-2], shape[-1], shape[-2]) if self.is_transposed else tuple(shape)


def recipe_of(name: str) -> Recipe | None:
    """Return the recipe that a name is, or None for a tensor of the checkpoint itself."""
    tensor, separator, recipe = name.rpartition(":")
    if not separator:
        return None
    scheme, _, part = recipe.partition(".")
    plain = scheme.removesuffix(_TRANSPOSED)
    return Recipe(tensor, Scheme.parse(plain), part or "values", plain != scheme)  # type: ignore[arg-type]


class QuantizedSource:
    """A checkpoint with the quantized tensors that a program asks for."""

    def __init__(self, checkpoint: TensorSource, names: Collection[str]) -> None:
        self._checkpoint = checkpoint
        available = checkpoint.specs
        recipes = {name: recipe for name in names if name not in available and (recipe := recipe_of(name))}
        self._recipes = {name: one for name, one in recipes.items() if _is_fit(one, available.get(one.tensor))}
        self._last: tuple[Recipe, dict[Part, torch.Tensor]] | None = None
        self._small: dict[Recipe, torch.Tensor] = {}
        self._stored: set[Recipe] = set()

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._checkpoint.origin

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of those with a recipe too."""
        specs = self._checkpoint.specs
        made = {
            name: one.scheme.specs(*one.shape_of(specs[one.tensor].shape))[one.part]
            for name, one in self._recipes.items()
        }
        return specs | made

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, and whether that took a copy."""
        import torch

        if not any(name in self._recipes for name in names):
            return self._checkpoint.join(names)
        recipes = [self._recipes[name] for name in names]
        made = [self._make(recipe) for recipe in recipes]
        if len(made) > 1:
            return torch.cat(made), True
        return made[0], not _is_mapped(self._checkpoint, recipes[0])

    def is_stored(self, name: str) -> bool:
        """Return whether a tensor that was made has the numbers of the files, so that nothing was rounded."""
        recipe = self._recipes.get(name)
        return recipe is None or dataclasses.replace(recipe, part="values") in self._stored

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take."""
        self._checkpoint.drop_pages(plain_names(names))

    def _make(self, recipe: Recipe) -> torch.Tensor:
        """Make all parts of a weight at once: scales are kept, and of the values those of the last weight."""
        if recipe in self._small:
            return self._small[recipe]
        key = dataclasses.replace(recipe, part="values")
        if self._last is None or self._last[0] != key:
            checkpoint, named = self._checkpoint, (recipe.tensor, recipe.scheme)
            stored = checkpoint.parts(*named) if isinstance(checkpoint, STORED) else None
            parts = stored or _quantized(checkpoint.join([recipe.tensor])[0], recipe)
            if stored is not None:
                self._stored.add(key)
            self._last = (key, parts)
            self._small |= {
                dataclasses.replace(key, part=part): tensor for part, tensor in parts.items() if part != "values"
            }
        return self._last[1][recipe.part]


def _is_mapped(checkpoint: TensorSource, recipe: Recipe) -> bool:
    """Return whether parts are views of a file."""
    return isinstance(checkpoint, PublishedExperts) and checkpoint.is_mapped(recipe.tensor, recipe.scheme)


def _quantized(weight: torch.Tensor, recipe: Recipe) -> dict[Part, torch.Tensor]:
    """Quantize a matrix, or one matrix after the other: a whole layer of experts in float32 may have 30 GB."""
    import torch

    if weight.dim() == 2:
        return recipe.scheme.quantize(weight.t() if recipe.is_transposed else weight)
    each = [_quantized(matrix, recipe) for matrix in weight]
    return {part: torch.stack([parts[part] for parts in each]) for part in recipe.scheme.parts}


def _is_fit(recipe: Recipe, spec: TensorSpec | None) -> bool:
    """Return whether there are matrices that the recipe can be applied to."""
    if spec is None or len(spec.shape) not in (2, 3):
        return False
    return recipe.scheme.fits(recipe.shape_of(spec.shape)[-1])
