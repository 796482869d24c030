"""The entry points that a check captures: the one place here that knows how tasks are built."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..compiler.compile import Recapture
from ..configuration import CompileConfig
from ..core import Choice
from ..exporters.kinds import kind_of
from ..exporters.source import ModelSource
from ..models.registry import GENERIC

_MODEL = "model"
"""Attribute of the modules that exporters capture, which holds the model."""


def extremes(config: CompileConfig) -> tuple[CompileConfig, dict[str, tuple[int, ...]]]:
    """Return a configuration with the smallest and the largest bucket of each list, and the buckets between them.

    Graphs of buckets between those two have the same operators with sizes between theirs, so that a limit on a size
    shows at one of the ends.

    Args:
        config: complete configuration of an export.
    """
    ends: dict[str, Any] = {}
    between = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, tuple) and len(value) > 2 and all(isinstance(size, int) for size in value):
            ends[field.name] = (min(value), max(value))
            between[field.name] = tuple(size for size in value if size not in ends[field.name])
    return dataclasses.replace(config, **ends), between


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntryPoints:
    """What an export would capture."""

    captures: tuple[Recapture, ...]
    """One function for each entry point."""
    family: Choice[str]
    """The implementation, and why."""
    prefixes: tuple[str, ...]
    """Paths of the user's model inside the captured modules, the longest first."""


def entry_points(source: ModelSource, config: Any, *, trust_remote_code: bool = False) -> EntryPoints:
    """Build the model of a task without weights, as an export does.

    Raises:
        CaptureError: the model's code is not static, or the implementation lacks something.
        ModelError: transformers cannot build it.
    """
    kind = kind_of(config.task, source.config.model_type)
    plan = kind.plan(source, config, trust_remote_code=trust_remote_code)
    return EntryPoints(captures=tuple(plan.captures), family=plan.choice, prefixes=_prefixes(kind.name, plan.choice))


def _prefixes(kind: str, family: Choice[str]) -> tuple[str, ...]:
    """The generic decoder wraps transformers' model once more, under the same name, and so do vision modules that come
    with a decoder of any family.
    """
    if kind == "image_text":
        return (f"{_MODEL}.{_MODEL}", _MODEL)
    return (f"{_MODEL}.{_MODEL}",) if kind == "decoder" and family.value == GENERIC else (_MODEL,)
