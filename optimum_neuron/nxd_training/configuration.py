"""A configuration of NxD Training, or of `neuronx_distributed_config`, as flat options: `{"trainer.max_steps": 10}`.

It does not know what the options mean: `options.py` takes them one by one, and names the rest.

    given = read_given("hf_llama3_8B_config.yaml")
    given.take("trainer.max_steps")
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files.documents import read_document

_REFERENCE, _EXPONENT = re.compile(r"\$\{([^${}]*)\}"), re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


class Given:
    """The options of a configuration, of which some are taken.

    Args:
        data: the configuration, nested; `${trainer.max_steps}` is the value of another option.
        name: its name, for errors.
    """

    def __init__(self, data: Mapping[str, Any], name: str) -> None:
        self.name, self._flat, self._taken = name, _flattened(data), set[str]()

    def take(self, key: str, default: Any = None) -> Any:
        """Return the value of an option; null is the default."""
        self._taken.add(key)
        value = self._value(key, ()) if key in self._flat else None
        return default if value is None else value

    def has(self, section: str) -> bool:
        """Return whether a section has options."""
        return any(key.startswith(f"{section}.") for key in self._flat)

    def rest(self) -> list[str]:
        """Return the keys of options that were not taken, null ones too."""
        return [key for key in self._flat if key not in self._taken]

    def wrong(self, key: str, hint: str) -> ConfigError:
        """Return the error for an option whose value has no counterpart."""
        value = self._value(key, ())
        return ConfigError(f"{self.name}: {key} is {value!r}, which is not supported.", hint=hint, key=key, value=value)

    def _value(self, key: str, seen: tuple[str, ...]) -> Any:
        if key not in self._flat or key in seen:
            problem = "refers to itself" if key in seen else "does not exist"
            hint = "Refer to another key, as in ${trainer.max_steps}."
            raise ConfigError(f"{self.name}: {key}, which another key refers to, {problem}.", hint=hint, key=key)
        value = self._flat[key]
        while isinstance(value, str) and (match := _REFERENCE.search(value)):
            result = self._referred(match[1].strip(), key, (*seen, key))
            value = result if match[0] == value else value.replace(match[0], str(result), 1)
        # YAML 1.1, which PyYAML reads, has no number 3e-4 without a point.
        return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value

    def _referred(self, text: str, key: str, seen: tuple[str, ...]) -> Any:
        name, _, arguments = text.partition(":")
        if name == "multiply":
            return math.prod(int(one) for one in arguments.split(","))
        dots = len(name) - len(name.lstrip("."))
        return self._value(".".join([*key.split(".")[:-dots], name[dots:]]) if dots else name, seen)


def _flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        is_section = isinstance(value, Mapping) and len(value) > 0
        flat |= _flattened(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return flat


def read_given(path: str | Path) -> Given:
    """Read a YAML or JSON file.

    Args:
        path: the file.

    Raises:
        ConfigError: it cannot be read, or has no options.
    """
    data = read_document(Path(path))
    if not isinstance(data, dict) or not data:
        message = f"{path} has no options."
        raise ConfigError(message, hint="Pass a configuration of NxD Training.", option="config", value=str(path))
    return Given(data, str(path))
