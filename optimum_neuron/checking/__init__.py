"""Whether a model can be compiled, and what it takes, without its weights and without compiling.

from optimum_neuron import check_model
report = check_model("path/or/org/name", instance_type="trn2", sequence_length=512)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

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

__getattr__ = lazy_names(__name__, _MODULES)
