"""From a checkpoint to an exported folder: find the model, compile, validate, save, inspect.

from optimum_neuron.exporters import main_export
report = main_export("path/or/org/name", "out", batch_size=1, sequence_length=512)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .adapters import merge_adapter
    from .build import cache_request
    from .export import ExportReport, main_export
    from .inspection import inspect_export

__all__ = ["ExportReport", "cache_request", "inspect_export", "main_export", "merge_adapter"]

_MODULES = {
    "ExportReport": "export",
    "main_export": "export",
    "inspect_export": "inspection",
    "cache_request": "build",
    "merge_adapter": "adapters",
}

__getattr__ = lazy_names(__name__, _MODULES)
