"""Structures of the performance model that were chosen with the published rows in view, as alternatives to score.

Each is the shipped model with one choice taken back or moved. `report.score` fits every one of them without a family,
takes the one that explains the other families best, and predicts the family with it: the choice is part of what is
validated (nested cross-validation, Varma and Simon 2006). Choices with a documented reason are not among them.

    with structure("joined gate and up"):
        made = cases(rows)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

from cases import sizes_of

from optimum_neuron.compiler import chunk_tiles
from optimum_neuron.simulator import ATTENTION_READ_S
from optimum_neuron.simulator.work import Work

SHIPPED = "as shipped"
_PACKAGE = "optimum_neuron.simulator"


def _reads_wait(work: Work, *_: object) -> float:
    """Every separate read of keys and values waits for the one before it."""
    return work.attention_reads * ATTENTION_READ_S


def _tiles_of_both(inner: int, columns: int, element_bytes: float) -> float:
    """A prime number of tiles leaves small pieces, also where the last tile is not full."""
    return min(chunk_tiles(inner), chunk_tiles(columns)) * 128 * element_bytes


STRUCTURES: Mapping[str, tuple[str, object]] = {
    SHIPPED: ("", None),
    "all reads wait": (f"{_PACKAGE}.device_time._separate_reads_s", _reads_wait),
    "large prompts not slower": (f"{_PACKAGE}.serving.LARGE_GRAPH_FACTOR", 1.0),
    "BSH prompts are slower too": (f"{_PACKAGE}.stacks.FIRST_BATCH_FIRST_SDK", (2, 19)),
    "large from 1.5e8 cycles": (f"{_PACKAGE}.serving.LARGE_GRAPH_CYCLES", 1.5e8),
    "large from 3.5e8 cycles": (f"{_PACKAGE}.serving.LARGE_GRAPH_CYCLES", 3.5e8),
    "primes at any width": (f"{_PACKAGE}.work.decoder.contiguous_bytes", _tiles_of_both),
    "joined gate and up": (f"{_PACKAGE}.work.roles._JOINED", "\0"),
}
"""What replaces what, by name."""


@contextlib.contextmanager
def structure(name: str) -> Iterator[None]:
    """Count and predict with one of the structures."""
    target, replacement = STRUCTURES[name]
    sizes_of.cache_clear()
    afresh = mock.patch.dict(f"{_PACKAGE}.work.reading._SIZES", clear=True)
    with afresh, mock.patch(target, replacement) if target else contextlib.nullcontext():
        yield
    sizes_of.cache_clear()
