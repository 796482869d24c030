"""Checkpoints that were published with quantized weights, under the names of the plain tensors that they stand for.

`PublishedSource` returns float32 tensors by plain names, and the parts of a scheme where the stored numbers are those
of the scheme: nothing is rounded again. It knows tensors and their layout (`layouts.py`) only; which one a checkpoint
has, and which scheme fits it, is read from its configuration in `sources/layouts.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.core import TensorSpec
from ..base.wording import listed
from ..errors import WeightsError
from .checkpoint import TensorSource
from .layouts import READERS, Layout, Matrix
from .modules import Module, find_modules, unexplained
from .schemes import Part, Scheme

if TYPE_CHECKING:
    import torch

_NUM_SHOWN = 6


class PublishedSource:
    """A checkpoint with quantized tensors, by the names of plain ones."""

    def __init__(self, checkpoint: TensorSource, layout: Layout) -> None:
        self._checkpoint = checkpoint
        self.layout = layout
        specs = checkpoint.specs
        self.modules: Mapping[str, Module] = find_modules(specs, layout.method)
        self._last: tuple[str, Matrix] | None = None
        problems = [problem for module in self.modules.values() for problem in self._problems(module)]
        problems += unexplained(specs, self.modules)
        if problems:
            raise self._error(problems)

    def _problems(self, module: Module) -> list[str]:
        return list(module.unread(self.layout.method)) or list(module.misfits(self.layout, *self._shape(module)))

    def _error(self, problems: Sequence[str]) -> WeightsError:
        shown = listed(problems, _NUM_SHOWN, separator="; ")
        message = f"The quantized weights of {self.origin} cannot be read as {self.layout.method}: {shown}."
        hint = "Download the checkpoint again, or pass the one that it was quantized from."
        return WeightsError(message, hint=hint, problems=list(problems))

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._checkpoint.origin

    @functools.cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of quantized ones as they are after dequantizing."""
        plain = {
            name: spec
            for name, spec in self._checkpoint.specs.items()
            if name.rpartition(".")[0] not in self.modules or name.endswith(".bias")
        }
        shapes = {f"{name}.weight": self._shape(module) for name, module in self.modules.items()}
        return plain | {name: TensorSpec(shape=shape, dtype="float32") for name, shape in shapes.items()}

    def tensors_of(self, module: str) -> Callable[[str], Any]:
        """Return a function that returns a stored tensor of a module, or None."""
        stored = self.modules[module].stored
        return lambda part: self._checkpoint.join([stored[part]])[0] if part in stored else None

    def _shape(self, module: Module) -> tuple[int, int]:
        """Outputs and inputs."""
        if module.values == "weight":
            num_outputs, num_inputs = module.specs["weight"].shape
        elif module.values == "weight_packed":
            num_outputs, num_inputs = self._checkpoint.join([f"{module.name}.weight_shape"])[0].tolist()
        else:
            num_outputs, num_rows = module.specs["scales"].shape[-1], module.specs["qweight"].shape[0]
            num_inputs = num_rows * (self.layout.per_int if self.layout.method == "gptq" else 1)
        return num_outputs, num_inputs

    def _matrix(self, module: str) -> Matrix:
        if self._last is None or self._last[0] != module:
            try:
                matrix = READERS[self.layout.method](self.tensors_of(module), self.layout)
            except ValueError as error:
                raise self._error([f"{module} {error}"]) from error
            self._last = (module, matrix)
        return self._last[1]

    def dequantized(self, module: str) -> torch.Tensor:
        """Return the float32 matrix of a module."""
        return self._matrix(module).dequantized()

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, dequantized, and whether that took a copy."""
        import torch

        if all(self.is_plain(name) for name in names):
            return self._checkpoint.join(names)
        tensors = [
            self._checkpoint.join([name])[0].float()
            if self.is_plain(name)
            else self.dequantized(name.removesuffix(".weight"))
            for name in names
        ]
        return (tensors[0] if len(tensors) == 1 else torch.cat(tensors)), True

    def parts(self, name: str, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a tensor in a scheme, or None if it is plain or has to be rounded to the scheme."""
        return None if self.is_plain(name) else self._matrix(name.removesuffix(".weight")).parts(scheme)

    def is_plain(self, name: str) -> bool:
        """Return whether the files have the tensor itself, and no numbers of a scheme."""
        module, _, part = name.rpartition(".")
        return part != "weight" or module not in self.modules

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take."""
        stored = [
            [name] if self.is_plain(name) else self.modules[name.removesuffix(".weight")].stored.values()
            for name in names
        ]
        self._checkpoint.drop_pages(list(itertools.chain.from_iterable(stored)))
