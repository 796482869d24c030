"""Whether a model can be compiled, and what it takes, without its weights and without compiling.

from optimum_neuron import check_model
report = check_model("path/or/org/name", instance_type="trn2", sequence_length=512)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .check import check_model
    from .report import FAIL_CONDITIONS, CheckReport, require_conditions

__all__ = ["FAIL_CONDITIONS", "CheckReport", "check_model", "require_conditions"]

_MODULES = {
    "FAIL_CONDITIONS": "report",
    "CheckReport": "report",
    "check_model": "check",
    "require_conditions": "report",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
