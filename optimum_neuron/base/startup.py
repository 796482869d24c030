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
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError
from . import env, unused_variables

_SYSLOG_SOCKET = "/dev/log"


@functools.cache
def apply_environment() -> None:
    """Configure the log and warn about unused variables, once for the process."""
    configure_log(os.environ)
    unused_variables.warn_unused(os.environ)


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
