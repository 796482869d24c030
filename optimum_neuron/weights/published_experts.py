"""Experts of published quantized checkpoints under the names of transformers' weights of three dimensions.

    mxfp4 (gpt-oss)   experts.gate_up_proj_blocks [E, O, I / 32, 16], experts.gate_up_proj_scales [E, O, I / 32]
    others            a matrix for each expert: experts.0.gate_proj.weight and its parts, as `published.py` reads them

`PublishedExperts` stands before such a source and has `experts.gate_up_proj` and `experts.down_proj`, dequantized, and
the parts of a scheme, which have outputs before inputs in any case.

Shape legend: E experts, O outputs, I inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.core import TensorSpec
from ..errors import WeightsError
from .checkpoint import TensorSource
from .published import PublishedSource
from .schemes import RUN, Part, Scheme, dequantize

if TYPE_CHECKING:
    import torch

_BLOCKS, _SCALES = "_blocks", "_scales"
_OF_EXPERT = re.compile(r"(.+)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w3|w2)\.weight")
_MATRICES = {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "down_proj": "down_proj"}
_MATRICES |= {"w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
"""Weight that has the matrix of an expert; that of the gate comes first."""
_ORDER = ("gate_proj", "w1", "up_proj", "w3", "down_proj", "w2")
_MIXTURE = re.compile(r"\.block_sparse_moe\b")
"""Mixtral's name of a mixture, which transformers calls mlp."""


def is_expert(name: str) -> bool:
    """Return whether a tensor is the matrix of one expert."""
    return _OF_EXPERT.fullmatch(name) is not None


class PublishedExperts:
    """A checkpoint whose experts are quantized, by the names of plain weights."""

    def __init__(self, checkpoint: TensorSource) -> None:
        self._checkpoint = checkpoint
        specs = checkpoint.specs
        self._mx = [name.removesuffix(_BLOCKS) for name in specs if name.endswith(_BLOCKS)]
        problems = [problem for name in self._mx if (problem := _problem(name, specs))]
        if problems:
            message = f"The quantized experts of {self.origin} cannot be read as mxfp4: {'; '.join(problems)}."
            raise WeightsError(message, hint="Download the checkpoint again.", problems=problems)
        self._matrices: dict[str, dict[int, list[str]]] = {}
        found = sorted(filter(None, map(_OF_EXPERT.fullmatch, specs)), key=lambda one: _ORDER.index(one[3]))
        for one in found:
            weight = f"{_renamed(one[1])}.experts.{_MATRICES[one[3]]}"
            self._matrices.setdefault(weight, {}).setdefault(int(one[2]), []).append(one[0])
        self._renamed = {_renamed(name): name for name in specs if _renamed(name) != name}

    @property
    def origin(self) -> str:
        """Source of the tensors, for messages."""
        return self._checkpoint.origin

    @functools.cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, of quantized ones as they are after dequantizing."""
        specs = dict(self._checkpoint.specs)
        made = {}
        for name in self._mx:
            num_experts, num_outputs, *blocks = specs.pop(name + _BLOCKS).shape
            del specs[name + _SCALES]
            made[name] = TensorSpec(shape=(num_experts, 2 * blocks[0] * blocks[1], num_outputs), dtype="float32")
        for name, experts in self._matrices.items():
            matrices = [specs[matrix] for matrix in next(iter(experts.values()))]
            num_outputs = sum(matrix.shape[0] for matrix in matrices)
            made[name] = dataclasses.replace(matrices[0], shape=(len(experts), num_outputs, matrices[0].shape[1]))
        return specs | {name: specs[stored] for name, stored in self._renamed.items()} | made

    def is_plain(self, name: str) -> bool:
        """Return whether the files have numbers of a weight of experts that are not quantized."""
        if name in self._mx:
            return False
        matrix, *_ = next(iter(self._matrices[name].values()))
        return not isinstance(self._checkpoint, PublishedSource) or self._checkpoint.is_plain(matrix)

    def is_mapped(self, name: str, scheme: Scheme) -> bool:
        """Return whether the parts of a tensor in a scheme are views of the file."""
        return name in self._mx and scheme.kind == "mxfp4"

    @property
    def weights(self) -> list[str]:
        """Names of the weights of three dimensions that are made here."""
        return [*self._mx, *self._matrices]

    def join(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Tensors joined along dimension 0, dequantized, and whether that took a copy."""
        import torch

        if len(names) == 1 and names[0] in self._mx:
            values, scale = self._stored_mx(names[0])
            return torch.stack([dequantize(*one).t() for one in zip(values, scale, strict=True)]), True
        if len(names) == 1 and names[0] in self._matrices:
            experts = self._matrices[names[0]]
            return torch.stack([self._checkpoint.join(experts[number])[0] for number in sorted(experts)]), True
        return self._checkpoint.join([self._renamed.get(name, name) for name in names])

    def parts(self, name: str, scheme: Scheme) -> dict[Part, torch.Tensor] | None:
        """Return the parts of a tensor in a scheme, or None if it is plain or has to be rounded to the scheme."""
        import torch

        if name in self._mx:
            values, scale = self._stored_mx(name)
            return {"values": values, "scale": scale} if scheme.kind == "mxfp4" else None
        if not isinstance(self._checkpoint, PublishedSource):
            return None
        if name not in self._matrices:
            return self._checkpoint.parts(self._renamed.get(name, name), scheme)
        experts, made = self._matrices[name], []
        for number in sorted(experts):
            parts = [one for matrix in experts[number] if (one := self._checkpoint.parts(matrix, scheme)) is not None]
            if len(parts) < len(experts[number]):
                return None
            made.append({part: torch.cat([one[part] for one in parts]) for part in scheme.parts})
        return {part: torch.stack([one[part] for one in made]) for part in scheme.parts}

    def drop_pages(self, names: Sequence[str]) -> None:
        """Let memory go that tensors of a file take."""
        for name in names:
            if name in self._mx:
                self._checkpoint.drop_pages([name + _BLOCKS, name + _SCALES])
            else:
                matrices = [matrix for one in self._matrices.get(name, {}).values() for matrix in one]
                self._checkpoint.drop_pages(matrices or [self._renamed.get(name, name)])

    def _stored_mx(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Bytes [E, O, I / 2] and exponents [E, O, I / 32], as views of the file."""
        import torch

        blocks, scales = (self._checkpoint.join([name + part])[0] for part in (_BLOCKS, _SCALES))
        return blocks.flatten(2), scales.view(torch.uint8)  # exponents, also where their dtype says so


def _problem(name: str, specs: Mapping[str, TensorSpec]) -> str | None:
    """Say what is wrong with the blocks of a weight, or return None."""
    blocks, scales = specs[name + _BLOCKS], specs.get(name + _SCALES)
    if scales is None:
        return f"{name} lacks {name.rpartition('.')[2]}{_SCALES}"
    if blocks.dtype != "uint8" or scales.dtype not in ("uint8", "float8_e8m0fnu"):
        return f"{name} has blocks of {blocks.dtype} and scales of {scales.dtype}"
    if blocks.shape == (*scales.shape, RUN // 2) and len(scales.shape) == 3:
        return None
    return f"{name} has blocks of shape {list(blocks.shape)} and scales of shape {list(scales.shape)}"


def _renamed(name: str) -> str:
    return _MIXTURE.sub(".mlp", name)
