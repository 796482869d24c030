"""The vendor's own kernels by name, and the decorator that scripts put on kernels of the older API.

Scripts that import the vendor's kernels start, and a call says which torch operator to use instead.

    >>> from optimum_neuron.tracing.kernels import attention_isa_kernel, nki_jit
    >>> nki_jit()(attention_isa_kernel)
    Kernel(name='attention_isa_kernel', replacement='torch.nn.functional.scaled_dot_product_attention')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import UnsupportedOperatorError
from ..nki.legacy import jit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel of the vendor that can be named, indexed with a grid, and not called."""

    name: str
    """Name of the kernel's function."""
    replacement: str
    """The torch operator that computes the same."""

    def __getitem__(self, grid: object) -> Kernel:
        """Return the kernel for a grid of NeuronCores, as in `kernel[grid](...)`."""
        return self

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Reject the call."""
        message = f"The NKI kernel {self.name} is the vendor's, and is not part of this package."
        raise UnsupportedOperatorError(
            message, hint=f"Call {self.replacement}.", kernel=self.name, replacement=self.replacement
        )


attention_isa_kernel = Kernel(
    name="attention_isa_kernel", replacement="torch.nn.functional.scaled_dot_product_attention"
)
"""The vendor's kernel of attention."""


def nki_jit(func: Callable[..., Any] | None = None) -> Any:
    """Make a kernel of a function of the older API, as `@nki_jit`, `@nki_jit()` or `nki_jit()(function)`."""
    if func is None:
        return nki_jit
    return func if isinstance(func, Kernel) else jit(func)
