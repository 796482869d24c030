"""One spelling for plain data, so that equal facts give equal bytes and equal hashes on every machine.

It does not depend on the meaning of the data. Text, numbers, booleans, None, lists and mappings with text keys have a
canonical spelling; anything else (paths, tensors, NaN) is an error, because its spelling would differ between machines.

    >>> from optimum_neuron.compiler.canonical import canonical_json
    >>> canonical_json({"b": (1, 2), "a": None}, what="example")
    b'{"a":null,"b":[1,2]}'
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError


def canonical_json(value: object, *, what: str) -> bytes:
    """Spell plain data as ASCII JSON with sorted keys and no blanks.

    Args:
        value: Text, numbers, booleans, None, and lists, tuples and mappings of those.
        what: Name of the data, for error messages.
    """
    problems: list[str] = []
    plain = _plain(value, "", problems)
    if problems:
        message = f"The {what} has values without a portable JSON form: {'; '.join(problems)}."
        hint = "Convert them to text, finite numbers, booleans, None, lists, or dictionaries with text keys."
        raise ConfigError(message, hint=hint, what=what, problems=problems)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(value: object, where: str, problems: list[str]) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                problems.append(f"{where or 'top level'} has the key {key!r} of type {type(key).__name__}")
        return {str(k): _plain(v, f"{where}.{k}" if where else str(k), problems) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]", problems) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{where} is {value}")
    elif not isinstance(value, (str, int, float, type(None))):
        problems.append(f"{where} is a {type(value).__name__}")
    return value
