"""Tensors of the older API: indexed by index tiles, assigned to, and computed with Python's operators.

`tensor[ip, ix]` is a name of elements until a function uses it, because the function has the mask. A matmul is a
product until the next instruction: `psum += product` accumulates in PSUM, and `psum[...] = product` writes there.
`tensor[...] = function(...)` is one instruction: the function's result goes to the tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from .. import instructions as ins, language as nl
from ..core import Rule, current, refuse, require
from ..dtypes import FORMATS, Dtype, dtype_name
from ..memory import Buffer
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from .indexing import IndexTile, Mask, Region, beyond, elements, part_of


class Arithmetic:
    """Operators of Python between tiles and numbers."""

    __slots__ = ()
    __array_ufunc__ = None
    """Arrays and numbers of NumPy leave an operator to the tile."""

    def __bool__(self) -> bool:
        if getattr(self, "buffer", Buffer.sbuf).is_on_chip:
            refuse(Rule.TENSOR_BRANCH)
        return True  # a tensor in HBM, which a kernel may be given or not

    def broadcast_to(self, shape: tuple[int, ...]) -> OlderTensor:
        """Repeat dimensions of size 1, without copying."""
        return older(nl.broadcast_to(resolved(self), tuple(shape)))

    def __neg__(self) -> OlderTensor:
        return compute(OPERATORS["negative"], self)

    def __invert__(self) -> OlderTensor:
        return compute(OPERATORS["invert"], self)


def _binary(name: str, *, swap: bool = False) -> Callable[[Any, Any], Any]:
    def operate(self: object, other: object) -> Any:
        if isinstance(other, np.ndarray):
            index = as_index(self)
            return getattr(np, name)(other, index) if swap else getattr(np, name)(index, other)
        return compute(OPERATORS[name], *((other, self) if swap else (self, other)))

    return operate


for _sign, _name in {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "mod": "mod"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift"},
    "rshift": "right_shift",
}.items():
    setattr(Arithmetic, f"__{_sign}__", _binary(_name))
    setattr(Arithmetic, f"__r{_sign}__", _binary(_name, swap=True))
for _sign, _name in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}.items():
    setattr(Arithmetic, f"__{_sign}__", _binary(_name))


class OlderTensor(Arithmetic, NkiTensor):
    """A tensor in one of the memories."""

    __slots__ = ("region",)
    region: Region
    """What the mask of the function that made it left; missing without a mask."""

    def __getitem__(self, key: object) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(item, np.ndarray | OlderTensor | IndexedTile) for item in keys):
            return IndexedTile(self, _as_arrays(self, keys))
        if any(isinstance(item, slice) for item in keys) and (indices := beyond(self.shape, self._full_key(keys))):
            return IndexedTile(self, indices)
        return super().__getitem__(key)

    def __setitem__(self, key: object, value: object) -> None:
        target = self[key]
        if isinstance(value, IndexedTile) and value.was_added_to:
            return
        if isinstance(target, OlderTensor) and target.is_same_view(value):
            return
        assign(resolved(target), value)

    def __iadd__(self, other: object) -> Self:
        add_to(self, other)
        return self

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.storage.format.size_bytes

    def astype(self, dtype: Dtype) -> OlderTensor:
        """Return a copy in another dtype."""
        return older(nl.copy(self, dtype))

    def expand_dims(self, axis: int) -> OlderTensor:
        """Insert a dimension of size 1."""
        return older(nl.expand_dims(self, axis))

    def assert_shape(self, shape: tuple[int, ...]) -> Self:
        """Return the tensor if it has a shape."""
        require(self.shape == tuple(shape), Rule.ASSERTED_SHAPE, of=self, wanted=tuple(shape))
        return self

    def part(self, region: Region) -> NkiTensor:
        """Return what a mask leaves of it, as a view."""
        return part_of(self, region)


def as_index(value: object) -> IndexTile:
    """Return the elements of a tile in memory as indices that only the core knows."""
    tile = resolved(value)
    return IndexTile.of(tile.integers().numpy(), is_dynamic=True)


def _as_arrays(tensor: OlderTensor, keys: tuple[Any, ...]) -> tuple[IndexTile, ...]:
    kinds = (int, np.integer, np.ndarray, OlderTensor, IndexedTile)
    fits = len(keys) == tensor.ndim and all(isinstance(item, kinds) for item in keys)
    require(fits, Rule.MIXED_INDICES, of=tensor)
    arrays = tuple(as_index(item) if isinstance(item, OlderTensor | IndexedTile) else item for item in keys)
    has_partitions = tensor.buffer.is_hbm or any(np.ndim(item) >= 2 for item in arrays)
    require(has_partitions, Rule.INDEX_TILE_DIMS, tensor=tensor.name)
    return tuple(item if isinstance(item, IndexTile) else IndexTile.of(item) for item in arrays)


@dataclasses.dataclass(eq=False)
class IndexedTile(Arithmetic):
    """Elements of a tensor that index tiles name."""

    tensor: OlderTensor
    indices: tuple[IndexTile, ...]
    """One index tile for each of its dimensions."""
    was_added_to: bool = False
    """Whether `+=` was here, so that the assignment that Python makes after it has nothing to do."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes without a mask."""
        return np.broadcast_shapes(*(index.shape for index in self.indices))

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self.tensor.dtype

    @property
    def buffer(self) -> Buffer:
        """Memory that they are in."""
        return self.tensor.buffer

    def __iadd__(self, other: object) -> Self:
        add_to(self.view(None), other)
        self.was_added_to = True
        return self

    def view(self, mask: Mask) -> NkiTensor:
        """Return the elements that a mask leaves, as a view."""
        return elements(self.tensor, self.indices, Region.of(mask, self.shape))


@dataclasses.dataclass(eq=False)
class Product(Arithmetic):
    """A matmul until the next instruction: it knows where its result goes."""

    shape: tuple[int, ...]
    run: Callable[[NkiTensor, bool | None], None]
    """Writes it to a tile in PSUM, or adds it."""
    dtype: str = "float32"
    tile: OlderTensor | None = None
    """Where it is, once something used it."""

    def view(self, mask: Mask = None) -> NkiTensor:
        """Return its tile in PSUM."""
        if self.tile is None:
            self.tile = fresh(self.shape, self.dtype, Buffer.psum)
            self.run(self.tile, False)
        return self.tile.part(Region.of(mask, self.shape))


@dataclasses.dataclass(frozen=True, eq=False)
class LoopSum:
    """A tile that is combined with the tensor that it is assigned to."""

    value: Any
    operator: Operator
    region: Region

    def write(self, dst: NkiTensor) -> None:
        """Combine it with a tensor."""
        if not self.region.is_empty:
            part = older(dst).part(self.region)
            ins.tensor_tensor(part, part, older(resolved(self.value)).part(self.region), self.operator)


def expect(product: Product) -> Product:
    """Return a product that runs before the next instruction."""
    settle()
    current().pending = product
    return product


def settle(but: object = None) -> None:
    """Run the product that still waits, unless it is the one that is used now."""
    core = current()
    product, core.pending = core.pending, None
    if product is not None and product is not but and product.tile is None:
        product.view()


def older(tensor: NkiTensor) -> OlderTensor:
    """Return a tensor as one of the older API."""
    return tensor if isinstance(tensor, OlderTensor) else OlderTensor(tensor.storage, tensor.data)


def resolved(value: object, mask: Mask = None) -> Any:
    """Return a tile as a view of what a mask leaves; a number as it is."""
    settle(but=value)
    if isinstance(value, IndexedTile | Product):
        return _used(value.view(mask))
    if isinstance(value, OlderTensor):
        return _used(value if mask is None or not value.ndim else value.part(Region.of(mask, value.shape)))
    return value.item() if isinstance(value, np.generic) else value


def _used(tile: NkiTensor) -> NkiTensor:
    """Note that a result is used that was assigned before, so that its instruction wrote it too."""
    core = current()
    written = core.redirected.pop(tile.storage.number, None) if core.redirected else None
    if written is not None and core.stream is not None:
        number, access = written
        record = core.stream[number]
        core.stream[number] = dataclasses.replace(record, writes=(*record.writes, access))
    return tile


def fresh(shape: Any, dtype: Dtype, buffer: Buffer = Buffer.sbuf) -> OlderTensor:
    """Return a new tile whose elements are undefined where a mask leaves them out, which is no error."""
    sizes = tuple(int(size) for size in shape)
    tensor = older(nl.ndarray(sizes if len(sizes) > 1 else (*sizes, 1), dtype, buffer=buffer))
    tensor.storage.settle()
    tensor.storage.mark_written(tensor.data)
    return tensor


def region_of(value: object) -> Region | None:
    """Return what a mask leaves of a tile; None without a mask."""
    return getattr(value, "region", None)


def masked(tile: OlderTensor, region: Region) -> OlderTensor:
    """Return a result that knows what its mask left."""
    if not region.is_all:
        tile.region = region
    return tile


def copy_to(dst: NkiTensor, value: Any) -> None:
    """Copy a tile or a number, with an engine, or by DMA where that alone reaches both memories or their partitions."""
    if not isinstance(value, NkiTensor):
        if ins.starts_where_engines_reach(dst):
            ins.memset(dst, value)
            return
        value = nl.full(dst.shape, value, dst.dtype, Buffer.hbm)
    reached = all(tile.buffer.is_on_chip and ins.starts_where_engines_reach(tile) for tile in (dst, value))
    (ins.tensor_copy if reached else ins.dma_copy)(dst, value)


def assign(dst: NkiTensor, value: object) -> None:
    """Write a value to a tensor, but for what the mask of its function left out; dimensions of size 1 are repeated."""
    settle(but=value)
    if isinstance(value, LoopSum):
        value.write(dst)
        return
    if isinstance(value, Product) and value.tile is None and dst.buffer is Buffer.psum:
        value.run(dst, False)
        return
    source = value.view(None) if isinstance(value, IndexedTile | Product) else value
    region = region_of(source)
    if not isinstance(source, NkiTensor):
        copy_to(dst, source.item() if isinstance(source, np.generic) else source)
        return
    if (pair := _masked_pair(dst, source, region)) is not None:
        _move(*pair)


def _masked_pair(dst: NkiTensor, source: NkiTensor, region: Region | None) -> tuple[NkiTensor, NkiTensor] | None:
    """Return what a mask left of a tensor and of a value of its shape or with dimensions of size 1; None if nothing."""
    if source.size != dst.size:
        source = older(nl.broadcast_to(source, dst.shape))
    if region is None:
        return dst, source
    return None if region.is_empty else (older(dst.reshape(source.shape)).part(region), older(source).part(region))


def _move(dst: NkiTensor, source: NkiTensor) -> None:
    """Copy a tile; if the last instruction made it, that one writes to the tensor instead."""
    core = current()
    record = core.stream[-1] if core.stream else None
    made = record is not None and [access.storage for access in record.writes] == [source.storage.number]
    reaches = dst.buffer.is_on_chip and (record is None or record.engine != "dma" or dst.buffer is Buffer.sbuf)
    if not made or not reaches or record is None or core.stream is None or record.opcode in ("tensor_copy", "memset"):
        copy_to(dst, _used(source))
        return
    access, stream = record.writes[0], core.stream
    core.stream = None
    copy_to(dst, source)
    stream[-1] = dataclasses.replace(record, writes=(dst.access(),))
    core.stream = stream
    core.redirected[source.storage.number] = (len(stream) - 1, access)


def add_to(dst: NkiTensor, value: object) -> None:
    """Add a product in PSUM, and anything else with the vector engine."""
    settle(but=value)
    if isinstance(value, Product) and value.tile is None and dst.buffer is Buffer.psum:
        value.run(dst, None)
        return
    region = region_of(value)
    other = resolved(value)
    if not isinstance(other, NkiTensor):
        ins.tensor_scalar(dst, dst, OPERATORS["add"], other)
        return
    if (pair := _masked_pair(dst, other, region)) is not None:
        into, term = pair
        both_in_psum = into.buffer is term.buffer is Buffer.psum
        ins.tensor_tensor(into, into, nl.copy(term) if both_in_psum else term, OPERATORS["add"])


def compute(operator: Operator, *operands: object, dtype: Dtype | None = None, mask: Mask = None) -> OlderTensor:
    """Compute an operator of tiles and numbers to a new tile; elements that a mask leaves out are undefined."""
    if dtype is None and _yields_floats(operator, operands):
        dtype = "float32"
    shapes = [operand.shape for operand in operands if hasattr(operand, "shape") and operand.shape]
    whole = tuple(np.broadcast_shapes(*shapes)) if mask is not None and shapes else ()
    region = Region.of(mask, whole) if mask is not None else None
    options = {} if dtype is None else {"dtype": dtype}
    if region is None or region.chosen is not None:
        result = older(operator(*(resolved(operand) for operand in operands), **options))
        return result if region is None else masked(result, region)
    if region.is_empty:
        return masked(fresh(whole, "float32" if dtype is None else dtype), region)
    part = operator(*(_part(operand, region) for operand in operands), **options)
    return masked(widened(part, whole, region), region)


def _yields_floats(operator: Operator, operands: Sequence[Any]) -> bool:
    """Return whether integer tiles become floats, as with NumPy: by a division, or with a number that is a float."""
    dtypes = [operand.dtype for operand in operands if hasattr(operand, "shape") and operand.shape]
    if any(FORMATS[dtype_name(dtype)].is_float for dtype in dtypes) or operator.is_bitwise:
        return False
    return operator.name == "divide" or any(isinstance(operand, float | np.floating) for operand in operands)


def widened(part: NkiTensor, shape: tuple[int, ...], region: Region) -> OlderTensor:
    """Return a tile with what an instruction computed in a block of it; the instruction writes there."""
    result = fresh(shape, part.dtype)
    place = result.part(region)
    place.copy_from(part)
    core = current()
    if core.stream:
        core.stream[-1] = dataclasses.replace(core.stream[-1], writes=(place.access(),))
    return result


def _part(operand: object, region: Region) -> Any:
    """Return the part of an operand in a block; dimensions of size 1 are repeated."""
    shape = getattr(operand, "shape", None)
    if not shape:
        return resolved(operand)
    block = region.block[len(region.block) - len(shape) :]
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(slice(None) if size == 1 else part for part, size in zip(block, shape, strict=True))] = True
    return resolved(operand, mask)
