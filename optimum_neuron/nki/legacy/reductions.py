"""Reductions of the older API over the last dimensions of a tile, of what a mask leaves."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..core import Rule, require
from ..dtypes import Dtype
from ..operators import OPERATORS
from ..tensor import NkiTensor
from .indexing import Mask, Region
from .published import LANGUAGE, published
from .tiles import OlderTensor, fresh, ins, masked, nl, older, resolved, widened

_OPERATORS = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply"}


def reduce(name: str, x: Any, axis: Any, dtype: Dtype, mask: Mask, keepdims: bool) -> OlderTensor:
    """Compute a reduction of `nki.language` of what a mask leaves of a tile."""
    region = Region.of(mask, x.shape)
    tile = (
        filled(f"nl.{name}", resolved(x), region, _OPERATORS.get(name))
        if region.chosen is not None
        else resolved(x, mask)
    )
    options: tuple[Any, ...] = () if name == "all" else (keepdims,)
    kind = ("float32" if not tile.storage.format.is_float and name == "mean" else None) if dtype is None else dtype
    part = getattr(nl, name)(tile, tuple(axis) if isinstance(axis, list) else axis, kind, *options)
    if region.is_all or region.chosen is not None:
        return older(part)
    rows = region.rows((x.shape[0], *part.shape[1:]))
    return masked(widened(part, rows.shape, rows), rows)


def filled(instruction: str, tile: NkiTensor, region: Region, operator: str | None) -> OlderTensor:
    """Return a copy with an operator's neutral element where a mask leaves elements out, so a block is left."""
    row = OPERATORS.get(operator or "")
    has_neutral = row is not None and row.identity is not None and not row.is_bitwise
    require(has_neutral, Rule.MASK_WITHOUT_BLOCK, instruction=instruction)
    assert row is not None and row.identity is not None
    result, neutral, kind = fresh(tile.shape, tile.dtype), row.identity, tile.storage.format
    if not kind.is_float and math.isinf(neutral):
        neutral = torch.iinfo(kind.storage).max if neutral > 0 else torch.iinfo(kind.storage).min
    ins.memset(result, neutral)
    source = older(tile).part(region)
    result.part(region).copy_from(source)
    return result


def _reduction(name: str) -> None:
    def function(
        x: object, axis: object, *, dtype: Dtype | None = None, mask: Mask = None, keepdims: bool = False
    ) -> OlderTensor:
        return reduce(name, x, axis, dtype, mask, keepdims)

    function.__doc__ = f"Compute nl.{name} over the last dimensions, of what a mask leaves."
    published(LANGUAGE, name)(function)


for _name in ("sum", "max", "min", "mean", "prod"):
    _reduction(_name)


@published(LANGUAGE)
def var(x: object, axis: object, *, dtype: Dtype | None = None, mask: Mask = None) -> OlderTensor:
    """Return the variance over the last dimensions, of what a mask leaves."""
    return reduce("var", x, axis, dtype, mask, False)


@published(LANGUAGE, "all")
def all_(x: object, axis: object, *, dtype: Dtype = bool, mask: Mask = None) -> OlderTensor:
    """Return 1 where all elements of the last dimensions are not 0, and 0 elsewhere."""
    return reduce("all", x, axis, "uint8" if dtype is bool else dtype, mask, False)


@published(LANGUAGE)
def softmax(
    x: Any, axis: Any, *, dtype: Dtype | None = None, compute_dtype: Any = None, mask: Mask = None
) -> OlderTensor:
    """Return the softmax over the last dimensions, of what a mask leaves."""
    region = Region.of(mask, x.shape)
    tile = filled("nl.softmax", resolved(x), region, "maximum") if region.chosen is not None else resolved(x, mask)
    part = nl.softmax(tile, tuple(axis) if isinstance(axis, list) else axis, compute_dtype if dtype is None else dtype)
    if region.is_all:
        return older(part)
    return masked(older(part) if region.chosen is not None else widened(part, tuple(x.shape), region), region)


@published(LANGUAGE)
def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: int,
    epsilon: float = 1e-6,
    *,
    dtype: Dtype | None = None,
    compute_dtype: Any = None,
    mask: Mask = None,
) -> OlderTensor:
    """Return `x / sqrt(sum(x * x) / n + epsilon) * w`; the sum is over the last dimensions."""
    region = Region.of(mask, x.shape)
    weights = resolved(w)
    part = nl.rms_norm(
        resolved(x, mask),
        older(weights).part(region) if tuple(weights.shape) == region.shape else weights,
        tuple(axis) if isinstance(axis, list) else axis,
        n,
        epsilon,
        dtype,
        compute_dtype,
    )
    return older(part) if region.is_all else masked(widened(part, tuple(x.shape), region), region)
