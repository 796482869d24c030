"""No fact without a source."""

from __future__ import annotations

import dataclasses
import re

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import CHIPS, CORES, INSTANCES, TIMINGS, Sourced
from tests.raising import raises

ENGINES = {
    f"{core.name} {engine.name}": engine
    for core in CORES.values()
    for engine in (core.tensor, core.vector, core.scalar, core.gpsimd)
    if engine is not None
}
RECORDS: dict[str, Sourced] = {
    **CORES,
    **ENGINES,
    **CHIPS,
    **INSTANCES,
    **{f"timing of v{g}": t for g, t in TIMINGS.items()},
}
PUBLISHERS = ("Neuron docs, ", "Amazon EC2 ", "neuronx-distributed-inference repository")


@pytest.mark.parametrize("name", RECORDS)
def test_every_value_names_public_document(name):
    record = RECORDS[name]
    facts = [f.name for f in dataclasses.fields(record) if f.name not in record.IDENTITY]
    assert facts
    for fact in facts:
        source = record.source(fact)
        if getattr(record, fact) not in (None, {}, ()):
            assert source.startswith(PUBLISHERS), f"{name}.{fact}: {source}"
        assert not re.search(r"\.(rst|md)\b|^/|\.\./", source), "a path, not a document"


def test_missing_price_has_a_hint():
    for instance in INSTANCES.values():
        for field in ("price_on_demand_usd_per_h", "price_reserved_usd_per_h"):
            if getattr(instance, field) is None:
                assert "pass your own" in instance.source(field)


def test_record_without_source_cannot_be_built():
    chip = CHIPS["Inferentia2"]
    with raises(ConfigError, missing=["hbm_bytes"], unknown=[]):
        dataclasses.replace(chip, sources={k: v for k, v in chip.sources.items() if k != "hbm_bytes"})
    with raises(ConfigError, missing=[], unknown=["color"]):
        dataclasses.replace(chip, sources={**chip.sources, "color": "page"})


def test_source_of_unknown_fact_is_refused():
    with raises(ConfigError, option="field", value="hbm_byte"):
        CHIPS["Inferentia2"].source("hbm_byte")
