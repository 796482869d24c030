"""The fitted constants: a handful for each core generation, read from one versioned file with its provenance.

`data/constants.json` is written by `tools/fit_simulator.py` from published measurements. Documented
rates are not in it: they are in `optimum_neuron.hardware`. It knows no formula.

    >>> constants().version
    5
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

FORMAT = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreConstants:
    """Fitted constants of one generation of cores. All fitted, none for one model."""

    row_overhead_bytes: float
    """Overhead of each contiguous piece of a weight, in addition to its bytes."""
    tensor_factor: float
    """Cycles of a product over the cycles of its tiles."""
    vector_factor: float
    """Time of vector passes in a decoder over elements by lanes and clocks."""
    graph_vector_factor: float
    """The same for every other graph, whose elementwise operators the compiler fuses."""
    all_reduce_us: float
    all_reduce_chip_us: float
    """Additional time for each chip beyond the first."""
    all_reduce_share: float
    """Rate of an all-reduce as part of the DMA rate of a core: DMA engines read and write every piece several times."""
    launch_us: float
    """Fixed time of a run of a graph."""
    waiting_reads: float
    """Separate reads of one operator that wait for each other; further ones overlap with them."""
    flash_factor: float
    """Part of the attention cost that is left with the fused kernel of SDK 2.19 and later."""
    lone_core_share: float = 1.0
    """Part of the rate of a chip's memory that one core reaches alone, where its cores share the memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostConstants:
    """Host overhead of one serving stack."""

    token_ms: float
    """Once for each token of a batch."""
    row_ms: float
    prefill_ms: Mapping[str, float] = dataclasses.field(hash=False)
    """Once for each prompt, by instance family; "" for the others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """80 % interval of a class of estimates: factors on the value."""

    low: float
    """Tenth percentile of published over predicted."""
    high: float
    num_rows: int
    """Published values that it rests on; 0 where there are none and the band is a judgment."""
    basis: str
    """Origin in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constants:
    """Everything that was fitted."""

    version: int
    """Raised with every fit."""
    fitted_on: str
    cores: Mapping[int, CoreConstants] = dataclasses.field(hash=False)
    hosts: Mapping[str, HostConstants] = dataclasses.field(hash=False)
    """By serving stack, see `host.STACKS`."""
    copy_bytes_per_s: float
    """Rate of copies between host and device."""
    training_mfu: float
    """Share of the peak that training reaches; operator-level models did no better."""
    bands: Mapping[str, Band] = dataclasses.field(hash=False)
    """By class of estimates."""


def parse(data: Mapping[str, Any]) -> Constants:
    """Read the plain data of a constants file."""
    assert data["format"] == FORMAT, f"constants of format {data['format']}"
    nested = {
        "cores": {int(name): CoreConstants(**values) for name, values in data["cores"].items()},
        "hosts": {name: HostConstants(**values) for name, values in data["hosts"].items()},
        "bands": {name: Band(**values) for name, values in data["bands"].items()},
    }
    return Constants(**{**{name: value for name, value in data.items() if name != "format"}, **nested})


@functools.cache
def constants() -> Constants:
    """The constants that this version ships."""
    text = resources.files(__package__).joinpath("data/constants.json").read_text()
    return parse(json.loads(text))
