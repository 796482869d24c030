"""Selects the library for float32 matmuls of the device: torch's BLAS, or oneDNN, which torch has too.

torch gives float32 products to MKL, which takes its AVX2 kernels on CPUs that are not Intel's. On an AMD EPYC with
AVX-512, oneDNN is twice as fast from some size on. Results differ in the last digits, as with any two libraries.

    >>> from optimum_neuron.device import products
    >>> print(products.current())  # doctest: +SKIP
    onednn (twice as fast on AMD EPYC with AVX-512)
      not blas: MKL takes its AVX2 kernels on CPUs that are not Intel's
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from ..base.core import Choice, Rejected
from ..errors import invalid_choice

Library = Literal["blas", "onednn"]

MIN_MULTIPLICATIONS = 2**21
"""From this many on oneDNN is faster, with one thread and with two; below, calling it costs more than it gains."""

MIN_SIDE = 4
"""Rows, columns and contracted elements from which on oneDNN is faster; thinner products are bound by memory."""


def choose(
    *, capabilities: Mapping[str, Any] | None = None, has_mkl: bool | None = None, has_onednn: bool | None = None
) -> Choice[Library]:
    """Decide which library multiplies, and why; None is unknown to torch."""
    import torch

    capabilities = torch.cpu.get_capabilities() if capabilities is None else capabilities
    has_mkl = torch.backends.mkl.is_available() if has_mkl is None else has_mkl
    has_onednn = torch.backends.mkldnn.is_available() if has_onednn is None else has_onednn
    name = str(capabilities.get("cpu_name", "this CPU"))

    def blas(reason: str, against: str = "not known to be faster there") -> Choice[Library]:
        return Choice(value="blas", reason=reason, rejected=(Rejected(candidate="onednn", reason=against),))

    if not has_onednn:
        return blas("torch was built without oneDNN", against="not in this build of torch")
    if not has_mkl:
        return blas("torch was built with another BLAS than MKL")
    if "intel" in name.lower():
        return blas(f"{name}, whose widest kernels MKL takes")
    if not capabilities.get("avx512_f"):
        return blas(f"{name} without AVX-512")
    slower = Rejected(candidate="blas", reason="MKL takes its AVX2 kernels on CPUs that are not Intel's")
    return Choice(value="onednn", reason=f"twice as fast on {name} with AVX-512", rejected=(slower,))


def is_worthwhile(num_rows: int, num_contracted: int, num_columns: int) -> bool:
    """Return whether a product is of a size from which on oneDNN is faster."""
    sizes = (num_rows, num_contracted, num_columns)
    return min(sizes) >= MIN_SIDE and num_rows * num_contracted * num_columns >= MIN_MULTIPLICATIONS


_current: Choice[Library] | None = None


def current() -> Choice[Library]:
    """Return the library in use, and why; it is chosen at the first use of a core."""
    if _current is None:
        _set(choose())
    assert _current is not None
    return _current


@contextlib.contextmanager
def use(library: Library) -> Iterator[None]:
    """Multiply with one library for the length of a block, in every thread of the process.

    Args:
        library: "blas" for the CPU's results, bit for bit; "onednn" for oneDNN from `MIN_MULTIPLICATIONS` on.
    """
    if library not in get_args(Library):
        raise invalid_choice("library", library, get_args(Library))
    before = current()
    _set(Choice(value=library, reason="set by products.use"))
    try:
        yield
    finally:
        _set(before)


def _set(choice: Choice[Library]) -> None:
    from . import library

    global _current
    library.load()
    _current = choice
    apply()


def apply() -> None:
    """Set the library in use for every device that is loaded."""
    from . import library

    num_multiplications = MIN_MULTIPLICATIONS if current().value == "onednn" else 0
    for functions in library.loaded():
        functions.neuron_set_products(num_multiplications, MIN_SIDE)
