"""Makes "xla" a device of torch: the cores of "neuron" under the name that PyTorch/XLA scripts use.

xla.enable()
x = torch.ones(2, device="xla")
"""

from __future__ import annotations

from . import graphs as graphs, library  # the graphs complete the device


def is_enabled() -> bool:
    """Return whether "xla" is a device of torch in this process."""
    return library.is_loaded()


def enable() -> None:
    """Make "xla" a device of torch; the first time on a machine this compiles it, which takes seconds.

    Raises:
        LoweringError: it cannot be built or loaded.

    Example:
        ```python
        import torch
        from optimum_neuron import xla

        xla.enable()
        print(torch.ones(2, device="xla"))
        ```
    """
    library.functions()
