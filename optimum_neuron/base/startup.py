"""Apply process-wide settings of the environment at the first use of simulated hardware: the level and the place of the
log, and warnings about variables that have no effect here.

A program's own logging stays as it is unless NEURON_RT_LOG_LEVEL or NEURON_RT_LOG_LOCATION is set.

    >>> from optimum_neuron.base.startup import apply_environment
    >>> apply_environment()
"""

from __future__ import annotations

import functools
import logging
import logging.handlers
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError, nearest
from . import env
from .env import FOR_SCRIPTS, VARIABLES, compile_records
from .variables import PREFIXES, row_of

_SYSLOG_SOCKET = "/dev/log"


@functools.cache
def apply_environment() -> None:
    """Configure the log and warn about unused variables, once for the process."""
    configure_log(os.environ)
    warn_unused(os.environ)


def configure_log(environ: Mapping[str, str]) -> None:
    """Set the level of this package's logger, and give it a handler where a place is named."""
    logger = logging.getLogger("optimum_neuron")
    level, location = env.log_level(environ), env.log_location(environ)
    if level is not None:
        logger.setLevel(level)
    if location is None and level is None:
        return
    # Messages below a warning would not be shown without a handler; a program that has configured its own gets them.
    if location is None and logger.hasHandlers():
        return
    handler = _syslog() if location == "SYSLOG" else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False


def _syslog() -> logging.Handler:
    if not Path(_SYSLOG_SOCKET).exists():  # the handler itself would drop every message
        message = f"NEURON_RT_LOG_LOCATION is SYSLOG, but this machine runs no system logger (no {_SYSLOG_SOCKET})."
        hint = "Set NEURON_RT_LOG_LOCATION=CONSOLE, or start a system logger."
        raise ConfigError(message, hint=hint, variable="NEURON_RT_LOG_LOCATION")
    return logging.handlers.SysLogHandler(address=_SYSLOG_SOCKET)


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
