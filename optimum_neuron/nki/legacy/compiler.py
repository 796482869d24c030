"""`neuronxcc.nki.compiler`: where tiles lie, and how the compiler treats a kernel.

Decorators return kernels: nothing is compiled here, so those that turn passes of the compiler off change nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import ConfigError
from ..language import no_reorder as no_reorder
from ..memory import Buffer
from .blocks import Allocation, Where
from .kernel import kernel_of


def _linear(base: int, sizes: Sequence[int], scale: int, block: tuple[int, ...]) -> int:
    """Return where a block lies if places repeat after `sizes` in each dimension."""
    counts = tuple(sizes) or (1,) * len(block)
    if len(counts) != len(block):
        message = f"{tuple(sizes)} physical tiles for {len(block)} dimensions of blocks."
        raise ConfigError(message, hint="Give one number for each dimension of blocks.", sizes=tuple(sizes))
    pairs = zip(block, counts, strict=True)
    return base + scale * sum(index % count * math.prod(counts[dim + 1 :]) for dim, (index, count) in enumerate(pairs))


class _Memory:
    """`ncc.sbuf` or `ncc.psum`: allocations of one memory; by itself it leaves the place to the compiler."""

    buffer: Buffer

    def auto_alloc(self) -> Allocation:
        """Leave the place to the compiler."""
        return Allocation(self.buffer)

    def alloc(self, func: Where) -> Allocation:
        """Place each block where a function says.

        Args:
            func: from block, partitions, and bytes of a partition to the place: (first partition, byte), after the
                number of the bank in PSUM.
        """
        return Allocation(self.buffer, func)


class _Sbuf(_Memory):
    buffer = Buffer.sbuf

    def mod_alloc(
        self, *, base_addr: int, base_partition: int = 0, num_par_tiles: Any = (), num_free_tiles: Any = ()
    ) -> Allocation:
        """Place blocks in turns on as many tiles as are named, one after the other from a byte on."""

        def place(block: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, ...]:
            partition = _linear(base_partition, num_par_tiles, pdim_size, block)
            return partition, _linear(base_addr, num_free_tiles, fdim_size, block)

        return Allocation(self.buffer, place)


class _Psum(_Memory):
    buffer = Buffer.psum

    def mod_alloc(
        self,
        *,
        base_bank: int,
        base_addr: int = 0,
        base_partition: int = 0,
        num_bank_tiles: Any = (),
        num_par_tiles: Any = (),
        num_free_tiles: Any = (),
    ) -> Allocation:
        """Place blocks in turns on as many banks as are named, from a bank on."""

        def place(block: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, ...]:
            return (
                _linear(base_bank, num_bank_tiles, 1, block),
                _linear(base_partition, num_par_tiles, pdim_size, block),
                _linear(base_addr, num_free_tiles, fdim_size, block),
            )

        return Allocation(self.buffer, place)


sbuf, psum = _Sbuf(), _Psum()


def _decorator(func: Callable[..., Any] | None, change: Callable[[Any], Any], **options: Any) -> Any:
    return functools.partial(_decorator, change=change, **options) if func is None else change(kernel_of(func))


def enable_stack_allocator(func: Callable[..., Any] | None = None, log_level: int = 50) -> Any:
    """Ask for the compiler's stack allocator; tiles have no place here unless the kernel gives one."""
    return _decorator(func, lambda kernel: kernel)


def skip_middle_end_transformations(func: Callable[..., Any] | None = None) -> Any:
    """Ask the compiler to keep the kernel as it is, which it is here anyway."""
    return _decorator(func, lambda kernel: kernel)


def force_auto_alloc(func: Callable[..., Any] | None = None) -> Any:
    """Ignore the places that the kernel gives its tiles."""
    return _decorator(func, lambda kernel: kernel.changed(ignores_addresses=True))


@contextlib.contextmanager
def allocation_scope() -> Iterator[None]:
    """Free the tiles of a block at its end; a tile lives until its last use here."""
    yield


@contextlib.contextmanager
def multi_buffer(factor: int = 2) -> Iterator[None]:
    """Let tiles of a block be placed several times; tiles are never shared here."""
    if factor < 1:
        message = f"nki.compiler.multi_buffer factor={factor}."
        raise ConfigError(message, hint="Give at least 1.", factor=factor)
    yield


__all__ = [
    *("allocation_scope", "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder", "psum", "sbuf"),
    "skip_middle_end_transformations",
]
