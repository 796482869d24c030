"""Loggers of which rank 0 alone writes.

get_logger().info("step %d", step)
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from ..base import env
from ..errors import ConfigError

_WRITES = ("debug", "info", "warning", "error", "exception", "fatal", "critical")
_OFF = logging.FATAL + 1
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.FATAL,
    "off": _OFF,
}
"""Values of NXD_LOG_LEVEL."""


@functools.lru_cache
def get_log_level() -> int:
    """Return the level of NXD_LOG_LEVEL, which is `info` by default.

    Raises:
        ConfigError: it has another value.
    """
    level = (env.variable("NXD_LOG_LEVEL") or "info").lower()
    if level not in LEVELS:
        hint = f"Set it to {', '.join(LEVELS)}, or unset it."
        raise ConfigError(f"NXD_LOG_LEVEL={level} is not supported.", hint=hint, variable="NXD_LOG_LEVEL", value=level)
    return LEVELS[level]


def get_logger(name: str = "neuronx_distributed", rank0_only: bool = True) -> logging.Logger:
    """Return a logger, which writes to stderr.

    Args:
        name: its name.
        rank0_only: other ranks write nothing.
    """
    logger: Any = logging.getLogger(name if rank0_only else f"{name}.all_ranks")
    if vars(logger).get("initialized"):
        return logger
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(asctime)s %(levelname).1s %(filename)s:%(lineno)d] %(message)s"))
    logger.handlers = [handler]
    level = get_log_level()
    if level == _OFF:
        logger.disabled = True
    else:
        logger.setLevel(level)
        for write in _WRITES if rank0_only else ():
            setattr(logger, write, on_rank_zero(getattr(logger, write)))
    logger.propagate, logger.initialized = False, True
    return logger


def on_rank_zero(write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a logger that does nothing on other ranks."""

    @functools.wraps(write)
    def called(*args: Any, **kwargs: Any) -> Any:
        is_running = torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if is_running else env.rank()
        if rank:
            return None
        return write(*args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})  # the caller's line

    return called
