"""Which tensors of a published checkpoint make a quantized matrix, and whether their shapes fit each other.

A tensor that a layout does not explain is a problem: a scale or a zero point that nobody reads would change every
result. It knows names and shapes only; `layouts.py` reads the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from ..base.core import TensorSpec
from .layouts import Layout

_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "fp8": {"weight": ("float8_e4m3fn",)},
    "compressed-tensors": {"weight_packed": ("int32",), "weight": ("float8_e4m3fn", "int8")},
    "gptq": {"qweight": ("int32",)},
    "awq": {"qweight": ("int32",)},
}
"""Names and dtypes of the numbers of a module, by method."""

_NEEDED = {
    "qweight": ("qzeros", "scales"),
    "weight_packed": ("weight_scale", "weight_shape"),
    "weight": ("weight_scale",),
}
"""Tensors that a module with such numbers needs."""

_OPTIONAL = {
    "fp8": (),
    "compressed-tensors": ("weight_zero_point", "weight_g_idx"),
    "gptq": ("g_idx",),
    "awq": (),
}
_IGNORED = {"bias", "activation_scale", "input_scale", "input_zero_point", "output_scale", "output_zero_point"}
"""A plain tensor, and what activations would be rounded with; they stay in 16 bits."""

_OF_MATRICES = {"weight_scale", "weight_scale_inv", "weight_zero_point", "weight_packed", "weight_shape"}
_OF_MATRICES |= {"weight_g_idx", "weight_global_scale", "weight_scale_2", "qweight", "qzeros", "scales", "g_idx"}
"""Tensors that are of no use alone."""

_WITH_SHAPES = _OF_MATRICES - {"weight_shape"}
_PAIR = TensorSpec(shape=(2,), dtype="int64")
_STORED = {"float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8"}
"""Dtypes of which a matrix is never plain."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """A quantized matrix in the files."""

    name: str
    """Name of the linear layer."""
    values: str
    specs: Mapping[str, TensorSpec]
    """Its tensors, by their names within it; scales are "weight_scale" also where a file says "weight_scale_inv"."""
    stored: Mapping[str, str]
    """Their names in the files, by the same."""

    def unread(self, method: str) -> Iterator[str]:
        """Say which tensors are missing, and which ones nothing would read."""
        needed = _NEEDED[self.values]
        if missing := [part for part in needed if part not in self.specs]:
            yield f"{self.name} lacks {' and '.join(missing)}"
        known = {self.values, *needed, *_OPTIONAL[method], *_IGNORED}
        if unknown := sorted(self.specs.keys() - known):
            yield f"{self.name} has {' and '.join(unknown)}, which nothing would read"
        if self.specs.get("weight_shape", _PAIR).shape != _PAIR.shape:
            yield f"{self.name} has weight_shape of shape {list(self.specs['weight_shape'].shape)}"

    def misfits(self, layout: Layout, num_outputs: int, num_inputs: int) -> Iterator[str]:
        """Say which tensors do not fit a matrix of so many outputs and inputs."""
        for part in sorted(self.specs.keys() & _WITH_SHAPES):
            if not self._fits(part, layout, num_outputs, num_inputs):
                shape = list(self.specs[part].shape)
                yield f"{self.name} of {num_outputs} outputs and {num_inputs} inputs has {part} of shape {shape}"

    def _fits(self, part: str, layout: Layout, num_outputs: int, num_inputs: int) -> bool:
        shape, scale = self.specs[part].shape, self.specs["scales" if "scales" in self.specs else "weight_scale"].shape
        packed_outputs = -(-num_outputs // layout.per_int)
        num_groups = layout.grid(num_outputs, num_inputs)[1]
        if part in ("g_idx", "weight_g_idx"):
            return shape == (num_inputs,)
        if part == "weight_scale":
            return layout.has_scales(shape, num_outputs, num_inputs)
        if part == "weight_zero_point":
            return shape == scale or (len(scale) == 2 and shape == (packed_outputs, scale[1]))
        if part == "weight_packed":
            return shape == (num_outputs, -(-num_inputs // layout.per_int))
        if part == "scales":
            return shape == (num_groups, num_outputs) or (len(shape) == 2 and "g_idx" in self.specs)
        if part == "qzeros":
            return shape == (scale[0], packed_outputs)
        return shape[1] == (num_outputs if layout.method == "gptq" else packed_outputs)


def find_modules(specs: Mapping[str, TensorSpec], method: str) -> dict[str, Module]:
    """Return the quantized modules of a checkpoint by name."""
    found = {}
    for values, dtypes in _VALUES[method].items():
        for name, spec in specs.items():
            module, _, part = name.rpartition(".")
            if part == values and spec.dtype in dtypes and len(spec.shape) == 2:
                found[module] = values
    stored: dict[str, dict[str, str]] = {module: {} for module in found}
    for name in specs:
        module, _, part = name.rpartition(".")
        if module in stored:
            is_inverse = part == "weight_scale_inv" and f"{module}.weight_scale" not in specs
            stored[module]["weight_scale" if is_inverse else part] = name
    return {
        name: Module(
            name=name, values=values, specs={p: specs[n] for p, n in stored[name].items()}, stored=stored[name]
        )
        for name, values in found.items()
    }


def unexplained(specs: Mapping[str, TensorSpec], modules: Mapping[str, Module]) -> Iterator[str]:
    """Say which tensors of a checkpoint are of no module, and are not plain either."""
    for name, spec in specs.items():
        module, _, part = name.rpartition(".")
        if module in modules:
            continue
        if part in _OF_MATRICES:
            yield f"{name} belongs to no quantized matrix"
        elif spec.dtype in _STORED and len(spec.shape) > 1 and part not in _IGNORED:  # a mask may be called bias
            yield f"{name} of shape {list(spec.shape)} is stored as {spec.dtype}"
