"""The fitted constants: what they are, the file of this version, and files of `optimum-cli neuron calibrate`.

    constants().cores[2].tensor_factor
    read_constants("mine.json")

`data/constants.json` has those of this version with their provenance; `tools/fit_simulator.py` writes it from published
measurements. This module does not know what a constant is good for: see `device_time.py` and `serving.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ..base.wording import listed
from ..errors import ConfigError
from ..files.plain_json import from_plain, parse_json

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
    spread: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Standard deviation of the logarithm of each constant, by the names of `flat`."""
    scale: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Factor on a class of times, by the names of `bands`; only calibrations have any."""
    calibrated_on: tuple[str, ...] = ()
    """Measurements of a user that it was updated with; empty for the constants of this version."""


def parse(data: Mapping[str, Any]) -> Constants:
    """Read the plain data of a constants file; a ValueError if it is not of this format."""
    if data.get("format") != FORMAT:
        raise ValueError(f"its format is {data.get('format')}, and this version reads format {FORMAT}")
    own = {name: value for name, value in data.items() if name != "format"}
    return from_plain(Constants, own | {"cores": {int(name): one for name, one in data["cores"].items()}})


def to_file(values: Constants) -> dict[str, Any]:
    """Return the plain data of a constants file."""
    return {"format": FORMAT, **dataclasses.asdict(values)}


def read_constants(path: str | Path) -> Constants:
    """Read constants that `optimum-cli neuron calibrate` wrote.

    Raises:
        ConfigError: the file is missing, damaged, or of another format.
    """
    try:
        data = parse_json(Path(path).read_bytes())
        if not isinstance(data, dict):
            raise ValueError("it holds no object")
        values = parse(data)
        if missing := sorted(flat(constants()).keys() - flat(values).keys()):
            raise ValueError(f"it has no {listed(missing, 6)}")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        message = f"The constants of {path} cannot be read: {reason}."
        hint = "Pass a file that `optimum-cli neuron calibrate --output` wrote."
        raise ConfigError(message, hint=hint, option="constants", value=str(path)) from error
    if wrong := {name for name, value in flat(values).items() if not 0 < value < math.inf}:
        message = f"{', '.join(sorted(wrong))} of {path} must be above 0."
        raise ConfigError(message, hint="Calibrate again.", option="constants", value=str(path), names=sorted(wrong))
    return values


_OTHERS = "others"
"""Name of the instance families without separate times."""


def flat(values: Constants) -> dict[str, float]:
    """Return the constants that measurements can move, by name. A constant of 0 has no logarithm and is left out."""
    found = {f"cores.{g}.{name}": value for g, core in values.cores.items() for name, value in vars(core).items()}
    for name, host in values.hosts.items():
        found |= {f"hosts.{name}.token_ms": host.token_ms, f"hosts.{name}.row_ms": host.row_ms}
        found |= {f"hosts.{name}.prefill_ms.{family or _OTHERS}": ms for family, ms in host.prefill_ms.items()}
    found |= {f"scale.{name}": factor for name, factor in values.scale.items()}
    found["copy_bytes_per_s"] = values.copy_bytes_per_s
    return {name: value for name, value in found.items() if value}


def with_flat(values: Constants, changed: Mapping[str, float]) -> Constants:
    """Return constants with some of them replaced, by the names of `flat`."""
    every = {**flat(values), **changed}

    def of(prefix: str) -> dict[str, float]:
        return {name.removeprefix(prefix): value for name, value in every.items() if name.startswith(prefix)}

    def host(name: str, before: HostConstants) -> HostConstants:
        times = {part: value for part, value in of(f"hosts.{name}.").items() if "." not in part}
        prefill = of(f"hosts.{name}.prefill_ms.").items()
        return dataclasses.replace(before, **times, prefill_ms={"" if f == _OTHERS else f: ms for f, ms in prefill})

    return dataclasses.replace(
        values,
        cores={g: dataclasses.replace(core, **of(f"cores.{g}.")) for g, core in values.cores.items()},
        hosts={name: host(name, before) for name, before in values.hosts.items()},
        copy_bytes_per_s=every["copy_bytes_per_s"],
        scale=of("scale."),
    )


@functools.cache
def constants() -> Constants:
    """The constants that this version ships."""
    text = resources.files(__package__).joinpath("data/constants.json").read_text()
    return parse(json.loads(text))
