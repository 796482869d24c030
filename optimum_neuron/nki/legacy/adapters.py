"""Instructions of the older API that are those of `nki.isa`, one row each; without `dst` they return a new tile.

A row has the published signature. The name of a parameter says what it is: an operator, a tile, a vector or number for
each partition, a tile that the instruction writes too, or an enumeration's member.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import instructions as ins
from ..dtypes import Dtype
from ..language import promoted
from ..memory import Buffer
from ..operators import as_operator
from ..tensor import NkiTensor
from .indexing import Mask, Region
from .published import ISA, listed, published, signature_of
from .results import engine, machine, new_tile, place, reduce_cmd, require_block, vector
from .tiles import OlderTensor, nl, older, resolved

FP32_MIN = float(np.finfo(np.float32).min)
_OPERATORS = frozenset({"op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1"})
_VECTORS = frozenset({"bias", "scale", "operand0", "operand1", "imm0", "imm1", "initial", "bound0", "bound1", "prob"})
_PLACES = frozenset({"reduce_res", "dst_idx"})
_DEFAULTS = {
    **{"None": None, "False": False, "0": 0, "1.0": 1.0, "lowest": FP32_MIN, "max": np.amax},
    **{"unknown": engine.unknown, "idle": reduce_cmd.idle, "reset_reduce": reduce_cmd.reset_reduce},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """How an instruction of the older API calls one of `nki.isa`."""

    parameters: str
    """Signature: names with defaults; the first tile is the one whose shape the result has."""
    tiles: tuple[str, ...]
    """Parameters that are tiles, the main one first."""
    shape: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    """Sizes of the result from those of the main tile; None for the same."""
    dtype: str | None = None
    """Dtype of the result; None for that of the main tile."""
    instruction: str = ""
    """Name in `nki.isa`, if it is another one."""


ROWS = {
    "activation": Row(
        "op data * bias=None scale=1.0 reduce_op=None reduce_res=None reduce_cmd=idle mask=None dtype=None", ("data",)
    ),
    "activation_reduce": Row("op data * reduce_op reduce_res bias=None scale=1.0 mask=None dtype=None", ("data",)),
    "bn_aggr": Row("data * mask=None dtype=None", ("data",), lambda sizes: (sizes[0], 2)),
    "bn_stats": Row("data * mask=None dtype=None", ("data",), lambda sizes: (sizes[0], 6)),
    "dropout": Row("data prob * mask=None dtype=None", ("data",)),
    "max8": Row("* src mask=None dtype=None", ("src",), lambda sizes: (sizes[0], 8)),
    "nc_find_index8": Row("* data vals mask=None dtype=None", ("data",), lambda sizes: (sizes[0], 8), dtype="uint32"),
    "nc_stream_shuffle": Row("src dst shuffle_mask * dtype=None mask=None", ("src",)),
    "nc_match_replace8": Row("* data vals imm dst_idx=None mask=None dtype=None", ("data",)),
    "range_select": Row(
        "* on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd=idle reduce_res=None reduce_op=max range_start=0 "
        "on_false_value=lowest mask=None dtype=None",
        ("on_true_tile",),
    ),
    "reciprocal": Row("data * dtype=None mask=None", ("data",)),
    "scalar_tensor_tensor": Row(
        "* data op0 operand0 op1 operand1 reverse0=False reverse1=False dtype=None mask=None", ("data", "operand1")
    ),
    "sequence_bounds": Row(
        "* segment_ids dtype=None", ("segment_ids",), lambda sizes: (sizes[0], 2, math.prod(sizes[1:]))
    ),
    "tensor_copy": Row("src * mask=None dtype=None engine=unknown", ("src",)),
    "tensor_copy_dynamic_dst": Row(
        "* dst src mask=None dtype=None engine=unknown", ("src",), instruction="tensor_copy"
    ),
    "tensor_copy_dynamic_src": Row("src * mask=None dtype=None engine=unknown", ("src",), instruction="tensor_copy"),
    "tensor_copy_predicated": Row("* src dst predicate reverse_pred=False mask=None dtype=None", ("src", "predicate")),
    "tensor_scalar": Row(
        "data op0 operand0 reverse0=False op1=None operand1=None reverse1=False * dtype=None mask=None engine=unknown",
        ("data",),
    ),
    "tensor_scalar_cumulative": Row("* src dst op0 op1 imm0 imm1=None reduce_cmd=reset_reduce mask=None", ("src",)),
    "tensor_scalar_reduce": Row(
        "* data op0 operand0 reduce_op reduce_res reverse0=False dtype=None mask=None", ("data",)
    ),
    "tensor_tensor": Row("data1 data2 op * dtype=None mask=None engine=unknown", ("data1", "data2")),
    "tensor_tensor_scan": Row(
        "data0 data1 initial op0 op1 reverse0=False reverse1=False * dtype=None mask=None", ("data0", "data1")
    ),
}
_WITHOUT_OPTIONS = frozenset({"sequence_bounds"})
_ELEMENTWISE = frozenset(
    (
        *("activation", "dropout", "reciprocal", "scalar_tensor_tensor", "tensor_copy", "tensor_copy_dynamic_dst"),
        *("tensor_copy_dynamic_src", "tensor_copy_predicated", "tensor_scalar", "tensor_tensor"),
    )
)
"""Instructions whose masks may leave out any elements, if they reduce nothing; of the others they leave a block."""


def adapt(name: str, row: Row) -> None:
    """Publish the function of a row."""
    signature, instruction = signature_of(row.parameters, _DEFAULTS), ins.FUNCTIONS[row.instruction or name]

    def function(*args: object, **kwargs: object) -> OlderTensor | None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        mask, dtype = given.pop("mask", None), given.pop("dtype", None)
        whole = given[row.tiles[0]]
        region = Region.of(mask if hasattr(whole, "shape") else None, np.shape(whole))
        require_block(f"nisa.{name}", region, name in _ELEMENTWISE and given.get("reduce_res") is None)
        if "dst" in given:
            _write(instruction, row, given, mask, dtype)
            return None
        tiles = {tile: resolved(given[tile], mask) for tile in row.tiles}
        main = tiles[row.tiles[0]]
        operands = {key: tiles[key] if key in tiles else _operand(key, value, main) for key, value in given.items()}
        if len(tiles) == 2 and all(tile.buffer is Buffer.psum for tile in tiles.values()):
            operands[row.tiles[1]] = nl.copy(tiles[row.tiles[1]])
        kind = dtype or row.dtype or promoted(*tiles.values())
        has_rows, sizes = row.shape is not None, region.shape if row.shape is None else row.shape(region.shape)
        return new_tile(sizes, kind, region, lambda dst: instruction(dst=dst, **operands), rows_only=has_rows)

    function.__doc__ = instruction.__doc__
    function.__signature__ = signature  # type: ignore[attr-defined]
    (listed if name in _WITHOUT_OPTIONS else published)(ISA, name)(function)


def _write(instruction: Callable[..., Any], row: Row, given: dict[str, Any], mask: Mask, dtype: Dtype | None) -> None:
    """Run an instruction that writes a tile which it is given; its main tile is converted to a dtype first."""
    tiles = {name: resolved(given[name], mask if hasattr(given[name], "shape") else None) for name in row.tiles}
    main = tiles[row.tiles[0]]
    if dtype is not None and isinstance(main, NkiTensor) and dtype != main.dtype:
        tiles[row.tiles[0]] = ISA["tensor_copy"](older(main), dtype=dtype)
    target = resolved(given["dst"], mask)
    others = {key: _operand(key, value, target) for key, value in given.items() if key not in ("dst", *tiles)}
    instruction(dst=target, **tiles, **others)


def _operand(name: str, value: Any, main: NkiTensor) -> Any:
    if value is None:
        return None
    if name in _OPERATORS:
        return as_operator(value, name)
    if name in _VECTORS:
        return vector(value, main)
    if name in _PLACES:
        return place(value)
    if name in ("engine", "reduce_cmd"):
        return machine(value)
    return resolved(value) if hasattr(value, "buffer") else value


for _name, _row in ROWS.items():
    adapt(_name, _row)
