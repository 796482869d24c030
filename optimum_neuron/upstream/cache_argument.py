"""The name of a decoder's cache in the installed transformers: `cache` since 5.24, `past_key_values` before.

It is the keyword of `forward` and `generate`, and the field of their results. No other module knows the names:

    output = model(ids, use_cache=True)
    model(next_ids, **{CACHE: output[CACHE]})

It does not depend on models.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.deprecation import deprecate_kwarg

P = ParamSpec("P")
R = TypeVar("R")

_OLD, _NEW = "past_key_values", "cache"

CACHE = _NEW if _NEW in {field.name for field in dataclasses.fields(CausalLMOutputWithPast)} else _OLD
"""Keyword and field of the cache."""


def takes_cache(forward: Callable[P, R]) -> Callable[P, R]:
    """Call the parameter `cache` of a method what transformers calls it; its older name works with its warning."""
    if CACHE == _NEW:
        return deprecate_kwarg(_OLD, "5.40.0", new_name=_NEW)(forward)

    @functools.wraps(forward)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        named = {_NEW: kwargs.pop(_OLD)} if _OLD in kwargs else {}
        return forward(*args, **named, **kwargs)  # type: ignore[arg-type]

    signature = inspect.signature(forward)
    parameters = [one.replace(name=_OLD) if one.name == _NEW else one for one in signature.parameters.values()]
    renamed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return renamed


def cache_keyword(forward: Callable[..., object]) -> str | None:
    """Return the keyword by which a `forward` takes its cache, if any: code of a checkpoint may have the older name."""
    parameters = inspect.signature(forward).parameters
    return next((name for name in (CACHE, _OLD) if name in parameters), None)
