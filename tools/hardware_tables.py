"""Markdown tables of the hardware catalogue, for `docs/hardware.md`; `generate_docs.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from optimum_neuron.hardware import (
    CHIPS,
    CORES,
    GIB,
    INSTANCES,
    KIB,
    MIB,
    TARGETS,
    TIMINGS,
    CoreSpec,
    EngineSpec,
    GpSimdSpec,
    Sourced,
    legal_core_counts,
)

_NONE = "n/p"


def _cell(value: object) -> str:
    if value is None or value == {} or value == ():
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, Mapping):
        return "<br>".join(f"{key}: {_cell(item)}" for key, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(_cell(item) for item in value)
    return str(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _scaled(value: float | None, unit: float, name: str) -> str | None:
    return None if value is None else f"{value / unit:.5g} {name}".rstrip()


def _by_rate(rates: Mapping[str, float]) -> str | None:
    """Dtypes with the same rate on one line: "92: bfloat16, float16"."""
    groups: dict[float, list[str]] = {}
    for dtype, rate in rates.items():
        groups.setdefault(rate, []).append(dtype)
    return "<br>".join(f"{rate:g}: {', '.join(dtypes)}" for rate, dtypes in groups.items()) or None


def _engine(engine: EngineSpec | None) -> str:
    if engine is None:
        return "none"
    parts = [_scaled(engine.clock_ghz, 1, "GHz"), _by_rate(engine.tflops)]
    if isinstance(engine, GpSimdSpec):
        parts.append(f"{engine.num_processors} processors of {engine.simd_bits} bits")
    if engine.flop_per_cycle is not None:
        parts.append(f"{engine.flop_per_cycle} FLOP/cycle")
    if engine.sparse_tflops:
        parts.append(f"sparse {_by_rate(engine.sparse_tflops)}")
    return "<br>".join(part for part in parts if part) or _NONE


def _cores() -> str:
    facts: list[tuple[str, Callable[[CoreSpec], object]]] = [
        ("tensor engine (TFLOPS)", lambda c: _engine(c.tensor)),
        ("vector engine (TFLOPS)", lambda c: _engine(c.vector)),
        ("scalar engine (TFLOPS)", lambda c: _engine(c.scalar)),
        ("GPSIMD engine", lambda c: _engine(c.gpsimd)),
        ("systolic array", lambda c: c.tensor_array and "x".join(map(str, c.tensor_array))),
        ("largest matmul K, M, N", lambda c: c.matmul_tiles),
        ("PSUM takes", lambda c: c.accumulate_dtypes),
        ("SBUF", lambda c: _scaled(c.sbuf_bytes, MIB, "MiB")),
        ("PSUM", lambda c: _scaled(c.psum_bytes, MIB, "MiB")),
        ("PSUM bank", lambda c: _scaled(c.psum_bank_bytes, KIB, "KiB per partition")),
        ("DMA engines", lambda c: c.num_dma_engines),
        ("DMA rate", lambda c: _scaled(c.dma_bytes_per_s, 1e9, "GB/s")),
        ("rounding", lambda c: c.rounding),
        ("dtypes", lambda c: c.dtypes),
        ("auto-cast types", lambda c: c.auto_cast_types),
        ("auto-cast of float32 by default", lambda c: c.auto_cast),
        (
            "engines that exclude each other",
            lambda c: (
                "; ".join(f"{a} and {b} on {memory.upper()}" for a, b, memory in c.port_conflicts)
                or (_NONE if c.generation == 1 else "none")
            ),
        ),
    ]
    return _table(["", *CORES], ([name, *(fact(core) for core in CORES.values())] for name, fact in facts))


def _chips() -> str:
    header = [
        "chip",
        "cores",
        "TFLOPS",
        "sparse TFLOPS",
        "memory",
        "memory rate",
        "DMA",
        "CC-cores",
        "links of a chip",
        "topology",
        "cores per logical core",
    ]
    return _table(
        header,
        (
            [
                c.name,
                f"{c.num_cores} x {c.core.name}",
                _by_rate(c.tflops),
                _by_rate(c.sparse_tflops) or "none",
                f"{c.hbm_bytes // GIB} GiB {c.memory}",
                _scaled(c.hbm_bytes_per_s, 1e9, "GB/s"),
                c.num_dma_engines and f"{c.num_dma_engines} engines, {_scaled(c.dma_bytes_per_s, 1e9, 'GB/s')}",
                c.num_cc_cores,
                f"{c.link_name}, {_scaled(c.link_bytes_per_s, 1e9, 'GB/s')}",
                c.topology,
                f"{_cell(c.lncs)} (default {c.default_lnc})",
            ]
            for c in CHIPS.values()
        ),
    )


def _instances() -> str:
    header = [
        "instance",
        "target",
        "chips",
        "cores",
        "logical cores",
        "vCPU",
        "host memory",
        "device memory",
        "network Gbit/s",
        "links of a chip GB/s",
        "on demand $/h",
        "reserved $/h",
    ]
    return _table(
        header,
        (
            [
                i.name,
                i.family,
                f"{i.num_chips} x {i.chip.name}",
                i.num_cores,
                i.num_logical_cores(),
                i.vcpus,
                _scaled(i.host_memory_bytes, GIB, "GiB"),
                _scaled(i.device_memory_bytes, GIB, "GiB"),
                i.network_gbps,
                "none" if i.num_chips == 1 else _scaled(i.link_bytes_per_s, 1e9, ""),
                i.price_on_demand_usd_per_h,
                i.price_reserved_usd_per_h,
            ]
            for i in INSTANCES.values()
        ),
    )


def _targets() -> str:
    return _table(
        ["target", "core", "chip", "memory of a logical core", "auto-cast types", "compilable"],
        (
            [
                t.name,
                t.core.name,
                t.chip.name,
                f"{t.hbm_bytes_per_core() // GIB} GiB",
                t.auto_cast_types,
                t.not_compilable_because and f"no: {t.not_compilable_because}" or True,
            ]
            for t in TARGETS.values()
        ),
    )


def _core_counts() -> str:
    def row(name: str) -> list[object]:
        legal = legal_core_counts(INSTANCES[name])
        first, last = legal.counts[0], legal.counts[-1]
        every = len(legal.counts) > 4 and len(legal.counts) == last - first + 1
        counts = f"{first} to {last}" if every else legal.counts
        return [name, counts, legal.rule, legal.aligned, legal.published, legal.source]

    shown = (
        "inf1.24xlarge",
        "inf2.48xlarge",
        "trn1.2xlarge",
        "trn1.32xlarge",
        "trn2.3xlarge",
        "trn2.48xlarge",
        "trn3-gen2-ultraserver",
    )
    header = ["instance", "cores of one job", "rule", "starts at a multiple", "published", "source"]
    return _table(header, map(row, shown))


def _timings() -> str:
    rows = sorted(
        [name, *(getattr(t, name) for t in TIMINGS.values()), TIMINGS[3].source(name)] for name in TIMINGS[2].sources
    )
    return _table(["cost", *(f"NeuronCore-v{g}" for g in TIMINGS), "source (NeuronCore-v3)"], rows)


def _sources() -> str:
    """Documents of the published facts; records with the same facts from the same document share a row."""
    records: list[tuple[Sourced, str]] = [(core, core.name) for core in CORES.values()]
    records += [
        (engine, f"{core.name} {engine.name}")
        for core in CORES.values()
        for engine in (core.tensor, core.vector, core.scalar, core.gpsimd)
        if engine is not None
    ]
    records += [(chip, chip.name) for chip in CHIPS.values()]
    records += [(instance, instance.name) for instance in INSTANCES.values()]
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for record, name in records:
        facts: dict[str, list[str]] = {}
        for fact, document in record.sources.items():
            if getattr(record, fact) not in (None, {}, ()):
                facts.setdefault(document, []).append(fact)
        for document, fields in facts.items():
            rows.setdefault((document, tuple(sorted(fields))), []).append(name)
    return _table(
        ["source", "of", "facts"],
        ([document, ", ".join(names), ", ".join(facts)] for (document, facts), names in sorted(rows.items())),
    )


TABLES: dict[str, Callable[[], str]] = {
    "hardware-cores": _cores,
    "hardware-chips": _chips,
    "hardware-instances": _instances,
    "hardware-targets": _targets,
    "hardware-core-counts": _core_counts,
    "hardware-timings": _timings,
    "hardware-sources": _sources,
}
"""Name in a marker to the function that makes the table; "n/p" means not published."""
