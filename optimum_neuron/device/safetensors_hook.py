"""safetensors straight to the device: `load_file(path, device="neuron:0")`, `safe_open(path, "pt", device="neuron")`.

safetensors knows devices by name from a list without ours, but takes the index of the current accelerator. So a name
becomes an index on the way in. `safe_open` is a class of another language that nothing can derive from; it is wrapped
when `safetensors` is imported, or now if it was.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..base.after_import import after_import
from ..upstream.safetensors import SAFE_OPEN


def install() -> None:
    """Wrap `safetensors.safe_open`, now or when it is imported."""
    after_import("safetensors", _wrap_everywhere)


def _accelerator_index(device: object) -> Any:
    """The index for a device of ours, anything else unchanged."""
    import torch

    text = str(device)
    if text.partition(":")[0] != "neuron":
        return device
    index = torch.device(text).index
    return torch.neuron.current_device() if index is None else index


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def safe_open(filename: object, framework: str, device: object = "cpu", *args: object, **kwargs: object) -> Any:
        return original(filename, framework, _accelerator_index(device), *args, **kwargs)

    return safe_open


def _wrap_everywhere(safetensors: ModuleType) -> None:
    """Replace the class in the module, and where others have imported it by name."""
    original = SAFE_OPEN.replace(_wrapped)
    wrapped = safetensors.safe_open
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("safe_open") is original:
            module.safe_open = wrapped  # type: ignore[attr-defined]
