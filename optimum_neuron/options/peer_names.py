"""Names of options in other libraries: which option of this package each is, or why it changes nothing.

>>> renamed({"tp_degree": 2, "batch_size": 1}, {"tp_degree": "tensor_parallel_size"})
{'batch_size': 1, 'tensor_parallel_size': 2}
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigError

logger = logging.getLogger(__name__)


def renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return options under the names that they have here.

    Args:
        names: other names, and the options that they are.
    """
    own = {name: value for name, value in options.items() if name not in names}
    return joined(own, ((name, names[name], options[name]) for name in names if name in options))


def joined(options: dict[str, Any], others: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return options, with the values of others: each a name, the option that it is, and a value."""
    options = dict(options)
    for other, name, value in others:
        if options.setdefault(name, value) != value:
            message = f"{other}={value!r} and {name}={options[name]!r} are the same option."
            raise ConfigError(message, hint=f"Pass {name} only: {other} is another name for it.", options=[other, name])
    return options


def report_without_effect(options: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Log, in one INFO line for each, which options change nothing, and why."""
    for name in reasons:
        if name in options:
            logger.info("%s=%r changes nothing: %s.", name, options[name], reasons[name])
