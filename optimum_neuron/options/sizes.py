"""Sizes of compiled shapes: checks of counts and buckets, and the errors for values that are not.

It does not depend on configurations; a field that is checked is an attribute of any object.

    >>> from optimum_neuron.options.sizes import default_buckets, is_rising
    >>> is_rising(default_buckets(128, 1000))
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import ConfigError

LARGEST_COUNT = 2**31 - 1
"""Largest size that a shape of a compiled program takes."""


def default_buckets(first: int, length: int) -> tuple[int, ...]:
    """Return `first`, then four times as much each, and `length` at the end."""
    rising = [first]
    while rising[-1] < length:
        rising.append(4 * rising[-1])
    return (*rising[:-1], length)


def sizes_up_to(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Return the sizes below a limit, and the limit at the end.

    >>> sizes_up_to((16, 64, 256), 128)
    (16, 64, 128)
    """
    return (*(size for size in sizes if size < most), most)


def is_count(value: object) -> bool:
    """Return whether a value is an integer of at least 1; booleans and 1.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_rising(values: object) -> bool:
    """Return whether values are a non-empty rising list of counts, as buckets must be."""
    return (
        isinstance(values, (list, tuple))
        and len(values) > 0
        and all(map(is_count, values))
        and list(values) == sorted(set(values))
    )


def count_error(name: str, value: object) -> ConfigError:
    """Return the error for a size that is not an integer of at least 1."""
    message = f"{name} is {value!r}, but must be an integer of at least 1."
    return ConfigError(message, hint=f"Pass {name}=1 or more.", option=name, value=value)


def count_errors(
    config: object, names: Iterable[str], *, optional: bool = False, allows_zero: bool = False
) -> Iterator[ConfigError]:
    """Yield an error for each field that is no integer from 1 to `LARGEST_COUNT`.

    Args:
        optional: they may be None.
    """
    for name in names:
        value = getattr(config, name)
        if allows_zero and value == 0 and not isinstance(value, bool):
            continue
        if not is_count(value) and not (optional and value is None):
            yield count_error(name, value)
        elif is_count(value) and value > LARGEST_COUNT:
            message = f"{name} is {value}, but must be at most {LARGEST_COUNT}."
            yield ConfigError(message, hint=f"Pass a smaller {name}.", option=name, value=value)


def size_errors(config: object, names: Iterable[str]) -> Iterator[ConfigError]:
    """Yield an error for each field that is neither a count, nor a rising list of them, nor None."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, (list, tuple)):
            if not is_rising(value):
                yield rising_error(name, value)
        elif value is not None and not is_count(value):
            yield count_error(name, value)


def rising_error(name: str, value: object) -> ConfigError:
    """Return the error for buckets that are not a rising list."""
    message = f"{name}={value!r} is not a rising list of sizes."
    return ConfigError(message, hint=f"Pass for example {name}=[64, 128].", option=name, value=value)


def missing_axes(sizes: Mapping[str, Any], axes: Iterable[str], what: str) -> list[ConfigError]:
    """Return an error for each size of an axis that the model does not have; None means no size.

    Args:
        what: Start of the message, for example "the inputs of a BERT model have".
    """
    axes = list(axes)
    return [
        ConfigError(
            f"{axis}={size}, but {what} {', '.join(axes)}.",
            hint=f"Remove {axis}.",
            **{"option": axis, "value": size, "choices": axes},
        )
        for axis, size in sizes.items()
        if size is not None and axis not in axes
    ]


def limit_error(name: str, value: int, limit: int) -> ConfigError:
    """Return the error for a length beyond the positions of a model."""
    message = f"{name} is {value}, but the model has {limit} positions."
    return ConfigError(message, hint=f"Pass {name}={limit} or less.", option=name, value=value, limit=limit)
