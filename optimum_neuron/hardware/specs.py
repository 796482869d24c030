"""Cores, chips, and instances as records in which every fact names its source.

Time belongs to the simulator. An unpublished fact is None, and its source says so. Units are in the names: `_bytes`,
`_bytes_per_s`, `_ghz`, `_tflops` (10**12 operations per second, of integers for integer types).

    >>> from optimum_neuron.hardware import CORES
    >>> core = CORES["NeuronCore-v2"]
    >>> core.sbuf_bytes // 2**20, core.source("sbuf_bytes")
    (24, 'Neuron docs, NKI, Trainium/Inferentia2 architecture guide')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from ..base.core import AutoCast
from ..errors import ConfigError, invalid_choice

KIB, MIB, GIB = 2**10, 2**20, 2**30


SourcedT = TypeVar("SourcedT", bound="Sourced")


def cite(documents: Mapping[str, str]) -> dict[str, str]:
    """Turn {document: "field field ..."} into {field: document}.

    Example:
        ```python
        from optimum_neuron.hardware.specs import cite

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


def revised(record: SourcedT, documents: Mapping[str, str], **facts: object) -> SourcedT:
    """Return a record with other facts; `documents`, as in `cite`, replace earlier sources."""
    return dataclasses.replace(record, sources={**record.sources, **cite(documents)}, **facts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSpec(Sourced):
    """One engine of a NeuronCore."""

    name: str
    """"tensor", "vector", "scalar" or "gpsimd"."""
    clock_ghz: float | None
    tflops: Mapping[str, float] = dataclasses.field(hash=False)
    """Peak dense rate by dtype; a dtype that is not listed has no published rate."""
    sparse_tflops: Mapping[str, float] = dataclasses.field(hash=False)
    """Peak rate by dtype with structured sparsity; empty where the engine has none."""
    lanes: Mapping[str, int] = dataclasses.field(hash=False)
    """Elements per cycle by dtype ("other": every dtype that is not listed); empty where not published."""
    flop_per_cycle: int | None
    """Operations per cycle, for the core whose clock is not published."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpSimdSpec(EngineSpec):
    """The engine of eight general-purpose vector processors."""

    num_processors: int
    simd_bits: int
    """Width of one processor's vectors."""
    tcm_bytes: int | None
    """Tightly-coupled memory of one processor."""
    dma_bytes_per_s: float | None
    """Bandwidth of the processors' own DMA, all together, both directions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreSpec(Sourced):
    """One physical NeuronCore."""

    name: str
    """For example "NeuronCore-v2"."""
    generation: int
    """1 to 4; artifacts are compiled for one generation."""
    tensor: EngineSpec
    """Systolic array."""
    vector: EngineSpec
    """128 lanes, two inputs."""
    scalar: EngineSpec
    """128 lanes, one input and a function table."""
    gpsimd: GpSimdSpec | None
    """General-purpose processors; NeuronCore-v1 has none."""
    tensor_array: tuple[int, int] | None
    """Rows and columns of the systolic array."""
    matmul_tiles: Mapping[str, tuple[int, int, int]] = dataclasses.field(hash=False)
    """Largest K, M, N of one matmul instruction, by mode: "dense", "fp8_double_row", "mx"."""
    accumulate_dtypes: tuple[str, ...]
    """Dtypes in which PSUM takes a matmul result."""
    sbuf_bytes: int | None
    """State buffer, the main on-chip memory."""
    sbuf_partitions: int | None
    psum_bytes: int | None
    """Accumulation buffer of the tensor engine."""
    psum_partitions: int | None
    psum_banks: int | None
    """Banks of one PSUM partition; a matmul result fits one bank."""
    num_dma_engines: int | None
    """DMA engines that serve this core."""
    dma_engine_bytes_per_s: float | None
    rounding: tuple[str, ...]
    """"rne" (to nearest even) and "stochastic"."""
    dtypes: tuple[str, ...]
    """Dtypes with which the engines compute or which they read and write."""
    auto_cast_types: tuple[str, ...]
    """Values the compiler accepts for --auto-cast-type."""
    auto_cast: AutoCast
    """float32 operations that its compiler rounds unless told otherwise."""
    port_conflicts: tuple[tuple[str, str, str], ...]
    """Pairs of engines that cannot use a memory at the same time: (engine, engine, memory)."""

    IDENTITY = Sourced.IDENTITY | {"tensor", "vector", "scalar", "gpsimd"}

    def __str__(self) -> str:
        return self.name

    @property
    def dma_bytes_per_s(self) -> float | None:
        """Rate of all DMA engines of the core together."""
        if self.num_dma_engines is None or self.dma_engine_bytes_per_s is None:
            return None
        return self.num_dma_engines * self.dma_engine_bytes_per_s

    @property
    def psum_bank_bytes(self) -> int | None:
        """Bytes of one PSUM bank in one partition."""
        if self.psum_bytes is None or self.psum_partitions is None or self.psum_banks is None:
            return None
        return self.psum_bytes // self.psum_partitions // self.psum_banks


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChipSpec(Sourced):
    """One chip: its cores, memory and links."""

    name: str
    """For example "Trainium2"."""
    core: CoreSpec
    num_cores: int
    """Physical cores."""
    tflops: Mapping[str, float] = dataclasses.field(hash=False)
    """Peak dense rate of the chip by dtype, as published; not exactly cores x core."""
    sparse_tflops: Mapping[str, float] = dataclasses.field(hash=False)
    """Peak rate with structured sparsity by dtype."""
    memory: str
    """"DRAM", "HBM" or "HBM3e"."""
    hbm_bytes: int
    """Device memory (DRAM on Inferentia)."""
    num_hbm_stacks: int | None
    hbm_bytes_per_s: float
    num_dma_engines: int | None
    dma_bytes_per_s: float | None
    """Rate of the chip's DMA engines, as published."""
    num_cc_cores: int | None
    """Processors that run collectives."""
    link_name: str
    """Generation of the links between chips."""
    num_links: int | None
    link_bytes_per_s: float
    """Rate of all links of one chip together."""
    topology: str
    """Topology of one instance's chips."""
    lncs: tuple[int, ...]
    """Legal numbers of physical cores in one logical core."""
    default_lnc: int
    """Physical cores in one logical core unless asked otherwise."""

    IDENTITY = Sourced.IDENTITY | {"core"}

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSpec(Sourced):
    """One EC2 instance size, or an UltraServer (several servers that share one link fabric)."""

    name: str
    """EC2 name in lower case, for example "inf2.xlarge"; UltraServers have names of this catalogue."""
    family: str
    """The compile target it belongs to."""
    chip: ChipSpec
    num_chips: int
    num_servers: int
    """1 for an instance."""
    num_instances: int = 1
    """Instances that share a model by its stages, see `topology.py`; counts, memory, and prices are of all."""
    vcpus: int | None
    host_memory_bytes: int | None
    device_memory_bytes: int
    network_gbps: float | None
    """Rate of the network of one instance."""
    link_bytes_per_s: float | None
    """Rate of one chip's links to the chips of the same server."""
    server_link_bytes_per_s: float | None
    """Rate of one chip's links to other servers of the same UltraServer, where published apart."""
    price_on_demand_usd_per_h: float | None
    """On-demand price; None with the reason in `sources`."""
    price_reserved_usd_per_h: float | None
    """Effective reserved price; None with the reason in `sources`."""

    IDENTITY = Sourced.IDENTITY | {"family", "chip", "num_instances"}

    def __str__(self) -> str:
        return self.name

    @property
    def num_cores(self) -> int:
        """Physical cores."""
        return self.num_chips * self.chip.num_cores

    def num_logical_cores(self, lnc: int | None = None) -> int:
        """Cores as the runtime counts them; `lnc` physical cores form one (None: the default)."""
        return self.num_cores // checked_lnc(self.chip, lnc)


def checked_lnc(chip: ChipSpec, lnc: int | None, *, asked: str | None = None) -> int:
    """Return the physical cores of one logical core, None for the chip's default; `asked` is the option in words."""
    if lnc is None:
        return chip.default_lnc
    if lnc not in chip.lncs:
        legal = " or ".join(map(str, chip.lncs))
        message = (
            f"{asked or f'lnc={lnc}'}: {chip.name} groups {legal} physical core(s) into a logical one (NCC_EARG001)."
        )
        hint = f"Use {legal}, leave it out, or simulate another instance with OPTIMUM_NEURON_INSTANCE."
        raise ConfigError(message, hint=hint, code="NCC_EARG001", lnc=lnc, legal=list(chip.lncs))
    return lnc
