"""Warnings about variables that are set for Neuron and have no effect here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

from ..errors import nearest
from .env import FOR_SCRIPTS, VARIABLES, compile_records
from .variables import PREFIXES, row_of

_warned: set[str] = set()


def unused(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are set for Neuron but ignored here, each with the reason.

    >>> list(unused({"NEURON_FUSE_SOFTMAX": "1", "NEURON_RT_NUM_CORES": "2"}))
    ['NEURON_FUSE_SOFTMAX']
    """
    consequences = {}
    for name in sorted(environ):
        if name in FOR_SCRIPTS and compile_records(environ):  # set by neuron_parallel_compile, not by the user
            continue
        if name.startswith(PREFIXES) and name not in VARIABLES:
            unknown = f"nothing here reads a variable of that name{nearest(name, VARIABLES)}"
            row = row_of(name)
            consequences[name] = row.meaning if row else unknown
    return consequences


def warn_unused(environ: Mapping[str, str] = os.environ) -> None:
    """Warn about each variable that decides nothing here, once for the process."""
    for name, consequence in unused(environ).items():
        if name not in _warned:
            _warned.add(name)
            warnings.warn(f"{name} is set, but has no effect here: {consequence}", stacklevel=4)
