"""Compare a compiled model with the reference model in float32: the engine runs scenarios, as users do.

scenarios.py    a name, a call of the engine, a call of the reference     decoder.py, ... make them for each kind
statistics.py   errors, signal-to-noise ratio, tolerances                 divergence.py   the first module that differs
"""

from .scenarios import Recorder, Results, Scenario, validate
from .statistics import FLOAT32_TOLERANCE, OutputError, compare, default_tolerance

__all__ = [
    "FLOAT32_TOLERANCE",
    "OutputError",
    "Recorder",
    "Results",
    "Scenario",
    "compare",
    "default_tolerance",
    "validate",
]
