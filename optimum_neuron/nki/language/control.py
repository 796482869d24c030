"""Loops, also of the device, places in the grid, sizes of tiles, and prints."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core import Rule, current, require, running, target_core
from ..instructions import VirtualRegister
from ..memory import Buffer
from ..tensor import NkiTensor
from .objects import NKIObject


def affine_range(start: int, stop: int | None = None, step: int = 1) -> Sequence[int]:
    """Return the numbers of a loop whose iterations do not depend on each other."""
    numbers = range(int(start)) if stop is None else range(int(start), int(stop), step)
    tape = current().tape if running() else None
    return numbers if tape is None else tape.loop(numbers)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> Sequence[int]:
    """Return the numbers of a loop whose iterations follow each other."""
    return affine_range(start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> Sequence[int]:
    """Return the numbers of a loop that the compiler unrolls."""
    return affine_range(start, stop, step)


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> Sequence[int]:
    """Return the numbers of a loop of the device, whose bounds may be registers.

    Raises:
        KernelError: the step is no positive number that is known before the kernel runs.
    """
    require(not isinstance(step, VirtualRegister) and step >= 1, Rule.LOOP_STEP, step=step, operand="step")
    return affine_range(start, stop, step)


def fori_loop(lower: object, upper: object, body_fun: Callable[[VirtualRegister], Any], step: object = 1) -> None:
    """Run a function for each number from lower to upper, on the device; it is given the number in a register."""
    with _loop(body_fun):
        for number in dynamic_range(lower, upper, step):
            body_fun(VirtualRegister(number, frozen=True))


@contextlib.contextmanager
def _loop(body_fun: Callable[..., Any]) -> Iterator[None]:
    """Note a loop of the device, out of which no instruction waits for another; its body names it."""
    core = current()
    around = core.loops
    core.loops = (*around, body_fun)
    try:
        yield
    finally:
        core.loops = around


def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """Run a function while a register is not 0, on the device; the function returns the next register."""
    register = init
    while register:
        with _loop(body_fun):
            register = body_fun(register)
        require(isinstance(register, VirtualRegister), Rule.LOOP_CONDITION, register=register, operand="body_fun")


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the order of the instructions in a block, which kernels have here anyway."""
    yield


def program_id(axis: int = 0) -> int:
    """Return the place of this core in a dimension of the grid; 0 without a grid."""
    rank = current().rank
    return rank[axis] if axis < len(rank) else 0


def num_programs(axes: Any = 0) -> Any:
    """Return the size of a dimension of the grid, or of several; 1 without a grid. None is the whole grid."""
    shape = current().grid.shape
    if axes is None:
        return math.prod(shape)
    if isinstance(axes, int):
        return shape[axes] if axes < len(shape) else 1
    return tuple(shape[axis] for axis in axes)


def program_ndim() -> int:
    """Return the number of dimensions of the grid."""
    return len(current().grid.shape)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor."""
    print(print_prefix, tensor.read())


def _memory(buffer: Buffer | NkiTensor) -> Buffer:
    return buffer if isinstance(buffer, Buffer) else buffer.buffer


def is_hbm(buffer: Buffer | NkiTensor) -> bool:
    """Return whether a memory, or that of a tensor, is HBM."""
    return _memory(buffer).is_hbm


def is_on_chip(buffer: Buffer | NkiTensor) -> bool:
    """Return whether a memory, or that of a tensor, is SBUF or PSUM."""
    return _memory(buffer).is_on_chip


def is_psum(buffer: Buffer | NkiTensor) -> bool:
    """Return whether a memory, or that of a tensor, is PSUM."""
    return _memory(buffer) is Buffer.psum


def is_sbuf(buffer: Buffer | NkiTensor) -> bool:
    """Return whether a memory, or that of a tensor, is SBUF."""
    return _memory(buffer) is Buffer.sbuf


class TileSize(NKIObject):
    """Largest sizes of tiles, as `nl.tile_size`."""

    pmax = 128
    psum_fmax = 512
    psum_bank_fmax = 512
    psum_bank_fmax_bytes = 2048
    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        banks = target_core().spec.psum_banks
        assert banks is not None
        return banks

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, in all partitions."""
        size = target_core().spec.sbuf_bytes
        assert size is not None
        return size

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of a partition of SBUF; simulated kernels may use all."""
        return target_core().partition_bytes(Buffer.sbuf)

    @property
    def sbuf_fmax(self) -> int:
        """Elements of float32 in a partition of SBUF."""
        return self.sbuf_fmax_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition of SBUF, under the name of older kernels."""
        return self.sbuf_fmax_bytes


tile_size = TileSize()
"""Largest sizes of tiles."""


__all__ = [
    *("affine_range", "device_print", "dynamic_range", "fori_loop", "is_hbm", "is_on_chip", "is_psum", "is_sbuf"),
    *("no_reorder", "num_programs", "program_id", "program_ndim", "sequential_range", "static_range", "tile_size"),
    "while_loop",
]
