"""safetensors straight to the device: `load_file(path, device="neuron:0")`, `safe_open(path, "pt", device="neuron")`.

safetensors knows devices by name from a list without ours, but takes the index of the current accelerator. So a name
becomes an index on the way in. `safe_open` is a class of another language that nothing can derive from; it is wrapped
when `safetensors` is imported, or now if it was.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_NAME = "safetensors"


def install() -> None:
    """Wrap `safetensors.safe_open`, now or when it is imported."""
    if _NAME in sys.modules:
        _wrap_everywhere()
    else:
        sys.meta_path.insert(0, _Finder())


def _accelerator_index(device: Any) -> Any:
    """The index for a device of ours, anything else unchanged."""
    import torch

    text = str(device)
    if text.partition(":")[0] != "neuron":
        return device
    index = torch.device(text).index
    return torch.neuron.current_device() if index is None else index


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def safe_open(filename: Any, framework: str, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
        return original(filename, framework, _accelerator_index(device), *args, **kwargs)

    return safe_open


def _wrap_everywhere() -> None:
    """Replace the class where modules have imported it by name."""
    original = sys.modules[_NAME].safe_open
    wrapped = _wrapped(original)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("safe_open") is original:
            module.safe_open = wrapped  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds safetensors once, as the other finders do, and wraps it when it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(_NAME)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._executing(spec.loader.exec_module)  # type: ignore
        return spec

    def _executing(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            execute(module)
            module.safe_open = _wrapped(module.safe_open)  # type: ignore[attr-defined]

        return exec_module
