"""Why a request missed: the nearest entries and the fields in which they differ.

It compares plain data and does not depend on storage or on the meaning of a field. Hashes always differ when anything
does, so they are named only where nothing else explains the miss.

    >>> from optimum_neuron.compiler.cache.explain import describe, differences
    >>> describe(differences({"sequence_length": 2048, "ir": "a" * 64}, {"sequence_length": 4096, "ir": "b" * 64}))
    'sequence_length 2048, cached 4096'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .entries import Entry

_DIGEST = re.compile(r"[0-9a-f]{16,}")
_SHOWN_DIGEST_CHARACTERS = 12
_NUM_SUMMARY_FIELDS = 8
_FIRST = (
    *("model_type", "model", "task", "batch_size", "sequence_length", "decoder_sequence_length", "prefill_buckets"),
    *("decode_buckets", "height", "width", "torch_dtype", "target"),
)
"""Fields that come first in a summary, in this order."""
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field in which a request and an entry differ."""

    field: str
    """Dotted path, for example "inputs.input_ids"."""
    request: Any
    """Value of the request; None where it has no such field."""
    cached: Any
    """Value of the entry; None where it has no such field."""
    text: str
    """For people."""


def differences(request: Mapping[str, Any], cached: Mapping[str, Any]) -> list[Difference]:
    """List the fields that differ, leaving out hashes unless only hashes differ."""
    return [
        Difference(
            field=field,
            request=None if left is _ABSENT else left,
            cached=None if right is _ABSENT else right,
            text=_text(field, left, right),
        )
        for field, (left, right) in _differing(request, cached).items()
    ]


def _differing(request: Mapping[str, Any], cached: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each field that differs, sorted, without hashes if there are others; equal parts are not read."""
    names = [name for name in {*request, *cached} if request.get(name, _ABSENT) != cached.get(name, _ABSENT)]
    left, right = (_leaves({name: side[name] for name in names if name in side}) for side in (request, cached))
    both = {field: (left.get(field, _ABSENT), right.get(field, _ABSENT)) for field in sorted({*left, *right})}
    differing = {field: pair for field, pair in both.items() if pair[0] != pair[1]}
    plain = {field: pair for field, pair in differing.items() if not any(map(_is_digest, pair))}
    return plain or differing


def describe(differing: Iterable[Difference]) -> str:
    """One line with all differences."""
    return "; ".join(difference.text for difference in differing)


def nearest_entries(
    request: Mapping[str, Any], entries: Iterable[Entry], *, limit: int
) -> list[tuple[Entry, list[Difference]]]:
    """The complete entries with the fewest differences, and these; what differs in most fields is not near."""
    num_fields = len(_leaves(request))
    near = [
        (len(differing), -(entry.marker.created_unix_s if entry.marker else 0), entry.name, entry)
        for entry in entries
        if entry.fields is not None
        if (differing := _differing(request, entry.fields)) and 2 * len(differing) <= num_fields
    ]
    nearest = [entry for *_, entry in sorted(near, key=lambda item: item[:3])[:limit]]
    return [(entry, differences(request, entry.fields or {})) for entry in nearest]


def summary(fields: Mapping[str, Any]) -> str:
    """Return the first fields of an entry in one line: model, task, and shapes first, without hashes."""

    def rank(field: str) -> int:  # the version of the compiler says least
        return _FIRST.index(field) if field in _FIRST else len(_FIRST) + (field == "compiler_version")

    leaves = sorted(_leaves(fields).items(), key=lambda item: rank(item[0]))
    texts = [f"{field} {value}" for field, value in leaves if value is not None and not _is_digest(value)]
    rest = f", {len(texts) - _NUM_SUMMARY_FIELDS} more" if len(texts) > _NUM_SUMMARY_FIELDS else ""
    return ", ".join(texts[:_NUM_SUMMARY_FIELDS]) + rest


def _leaves(value: Mapping[str, Any] | list[Any] | tuple[Any, ...], where: str = "") -> dict[str, Any]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    leaves: dict[str, Any] = {}
    for key, item in items:
        path = f"{where}.{key}" if where else str(key)
        nested = isinstance(item, Mapping) or (
            isinstance(item, (list, tuple)) and any(isinstance(part, (Mapping, list, tuple)) for part in item)
        )
        if nested and item:
            leaves.update(_leaves(item, path))
        else:
            # A request has tuples where the JSON of an entry has lists.
            leaves[path] = list(item) if isinstance(item, tuple) else item
    return leaves


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _text(field: str, request: object, cached: object) -> str:
    if request is _ABSENT:
        return f"{field} not asked for, cached {_value_text(cached)}"
    return f"{field} {_value_text(request)}, cached {'without it' if cached is _ABSENT else _value_text(cached)}"


def _value_text(value: Any) -> str:
    return f"{value[:_SHOWN_DIGEST_CHARACTERS]}..." if _is_digest(value) else str(value)
