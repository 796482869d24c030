"""The base of every record in the catalogue: no fact without a source.

A record lists one source for each of its fields, also for a field that is None (then the source says why), and cannot
be built otherwise.

    >>> from optimum_neuron.hardware import CHIPS
    >>> CHIPS["Inferentia"].source("num_cc_cores")
    'not published'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from ..errors import ConfigError, invalid_choice

SourcedT = TypeVar("SourcedT", bound="Sourced")


def cite(documents: Mapping[str, str]) -> dict[str, str]:
    """Turn {document: "field field ..."} into {field: document}.

    Example:
        ```python
        from optimum_neuron.hardware.sourced import cite

        assert cite({"page A": "clock_ghz lanes"}) == {"clock_ghz": "page A", "lanes": "page A"}
        ```
    """
    return {field: document for document, names in documents.items() for field in names.split()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sourced:
    """Base of the records."""

    sources: Mapping[str, str] = dataclasses.field(hash=False, repr=False)
    """Field name -> public document; for a fact that is None, the reason."""

    IDENTITY: ClassVar[frozenset[str]] = frozenset({"sources", "name"})
    """Fields that name the record or hold another record, and so need no source."""

    def __post_init__(self) -> None:
        facts = {f.name for f in dataclasses.fields(self)} - self.IDENTITY
        missing, unknown = sorted(facts - set(self.sources)), sorted(set(self.sources) - facts)
        if missing or unknown:
            name = type(self).__name__
            message = f"{name} has facts without a source ({missing}) or sources without a fact ({unknown})."
            hint = "Give `sources` one entry for each fact."
            raise ConfigError(message, hint=hint, missing=missing, unknown=unknown)

    def source(self, field: str) -> str:
        """Say where a fact comes from, or why it is None; a ConfigError if there is no such fact."""
        if field not in self.sources:
            raise invalid_choice("field", field, sorted(self.sources))
        return self.sources[field]


def revised(record: SourcedT, documents: Mapping[str, str], **facts: Any) -> SourcedT:
    """Return a record with other facts; `documents`, as in `cite`, replace earlier sources."""
    return dataclasses.replace(record, sources={**record.sources, **cite(documents)}, **facts)
