"""The entry point that torch calls at the end of `import torch`: it makes "neuron" a device, or says why not.

It also lets transformers' own pipelines serve exported folders, once they are imported.

It never raises, because torch would then fail to import for everybody. If the shared object for this torch is in the
cache it is loaded, which takes milliseconds; otherwise the first use of the device builds it (`first_use.py`).

    >>> from optimum_neuron.device import status
    >>> status().value
    True
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from ..base.core import Choice
from ..modeling import stock_pipelines

VENDOR = "torch-neuronx"
"""Distribution of the vendor, which brings the real device."""

_status: Choice[bool] = Choice(
    value=False, reason="torch did not load device extensions: TORCH_DEVICE_BACKEND_AUTOLOAD=0, or no torch"
)


def autoload() -> None:
    """Register the device with torch. For torch's entry point group "torch.backends"."""
    global _status
    try:
        stock_pipelines.install()
        _status = _registered()
    # Whatever it is, `import torch` has to go on; `status` tells.
    except Exception as error:
        _status = Choice(value=False, reason=f"registering it failed: {type(error).__name__}: {error}")


def status() -> Choice[bool]:
    """Return whether this package provides the device "neuron", and why or why not.

    Example:
        ```python
        from optimum_neuron.device import status

        print(status())
        ```
    """
    import torch  # noqa: F401  (its import is what calls `autoload`)

    return _status


def _registered() -> Choice[bool]:
    import torch

    from ..upstream.torch import get_privateuse1_backend_name, register_device_module

    vendor = _version_of(VENDOR)
    if vendor is not None:
        return Choice(value=False, reason=f"the vendor's {VENDOR} {vendor} is installed: its device goes first")
    name = get_privateuse1_backend_name()
    if name != "privateuseone":
        return Choice(value=False, reason=f"torch has room for one device of others, and '{name}' has taken it")
    from ..files.shared_objects import find
    from . import callbacks, distributed, first_use, library, lightning_hook, module, parts

    torch.utils.rename_privateuse1_backend("neuron")
    register_device_module("neuron", module)
    options: dict[str, Any] = {"for_tensor": True, "for_module": True, "for_packed_sequence": True, "for_storage": True}
    torch.utils.generate_methods_for_privateuse1_backend(**options)
    library.connect(callbacks.answers, parts.complete)
    lightning_hook.install()
    # accelerate makes a process group before the first use of the device, which may have to build it.
    distributed.install()
    if find(library.place()) is not None:
        library.load()
        return Choice(value=True, reason=f"loaded from {library.place()}")
    first_use.stand_in()
    return Choice(value=True, reason=f"the first use builds {library.place()}, once for this torch")


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
