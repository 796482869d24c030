"""The four NeuronCore generations, number by number.

Every number is the document's own. If two documents disagree, `docs/hardware.md` says which one is used here.
NeuronCore-v1 is documented only in outline, so most of its facts are None.

    >>> from optimum_neuron.hardware import CORES
    >>> CORES["NeuronCore-v3"].tensor.tflops["bfloat16"]
    79.0
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from . import documents as doc
from .specs import KIB, MIB, CoreSpec, EngineSpec, GpSimdSpec, cite, revised

RATE_16BIT = ("bfloat16", "float16", "tfloat32")
_FP8 = ("float8_e4m3", "float8_e5m2")
CFP8 = ("float8_e3m4", *_FP8)
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "bool")
_NO_CYCLES = "the rate follows from the clock and the lanes"
_NO_SPARSE = "this engine has no structured sparsity"


def _engine(
    name: str,
    clock_ghz: float | None,
    tflops: Mapping[str, float],
    lanes: Mapping[str, int],
    *,
    clock_source: str,
    tflops_source: str,
    sparse_tflops: Mapping[str, float] | None = None,
    flop_per_cycle: int | None = None,
    flop_source: str = _NO_CYCLES,
) -> EngineSpec:
    return EngineSpec(
        name=name,
        clock_ghz=clock_ghz,
        tflops=tflops,
        lanes=lanes,
        flop_per_cycle=flop_per_cycle,
        sparse_tflops=sparse_tflops or {},
        sources={
            "clock_ghz": clock_source,
            "lanes": clock_source,
            "tflops": tflops_source,
            "sparse_tflops": tflops_source if sparse_tflops else _NO_SPARSE,
            "flop_per_cycle": flop_source,
        },
    )


def _gpsimd(
    clock_ghz: float,
    clock_source: str,
    *,
    lanes: int | None = None,
    tcm_bytes: int | None = None,
    dma_bytes_per_s: float | None = None,
) -> GpSimdSpec:
    def source_of(value: float | None) -> str:
        return clock_source if value is not None else doc.NOT_PUBLISHED

    return GpSimdSpec(
        name="gpsimd",
        clock_ghz=clock_ghz,
        tflops={},
        sparse_tflops={},
        flop_per_cycle=None,
        num_processors=8,
        lanes={} if lanes is None else {"other": lanes},
        simd_bits=512,
        tcm_bytes=tcm_bytes,
        dma_bytes_per_s=dma_bytes_per_s,
        sources={
            "clock_ghz": clock_source,
            "num_processors": doc.NC_V2,
            "simd_bits": doc.NC_V2,
            "tflops": doc.NOT_PUBLISHED,
            "sparse_tflops": _NO_SPARSE,
            "flop_per_cycle": _NO_CYCLES,
            "lanes": source_of(lanes),
            "tcm_bytes": source_of(tcm_bytes),
            "dma_bytes_per_s": source_of(dma_bytes_per_s),
        },
    )


_unclocked = functools.partial(_engine, clock_ghz=None, lanes={}, clock_source=doc.NOT_PUBLISHED)

_V1 = CoreSpec(
    name="NeuronCore-v1",
    generation=1,
    tensor=_unclocked(
        "tensor",
        tflops={"bfloat16": 16.0, "float16": 16.0, "int8": 32.0},
        tflops_source=f"{doc.NC_V1}; int8: {doc.INFERENTIA}, 128 TOPS per chip over 4 cores",
        flop_source=doc.NOT_PUBLISHED,
    ),
    vector=_unclocked("vector", tflops={}, tflops_source=doc.NOT_PUBLISHED, flop_per_cycle=256, flop_source=doc.NC_V1),
    scalar=_unclocked("scalar", tflops={}, tflops_source=doc.NOT_PUBLISHED, flop_per_cycle=512, flop_source=doc.NC_V1),
    gpsimd=None,
    tensor_array=None,
    matmul_tiles={},
    accumulate_dtypes=("float32", "int32"),
    sbuf_bytes=None,
    sbuf_partitions=None,
    psum_bytes=None,
    psum_partitions=None,
    psum_banks=None,
    num_dma_engines=None,
    dma_engine_bytes_per_s=None,
    rounding=("rne",),
    dtypes=("float32", "bfloat16", "float16", "int8", "uint8", "int16", "int32", "bool"),
    auto_cast_types=("bf16", "fp16"),
    auto_cast="all",
    port_conflicts=(),
    sources=cite(
        {
            doc.NC_V1: "generation accumulate_dtypes",
            f"{doc.NC_V1}; bool and uint8: {doc.INF1_OPERATORS}, comparisons": "dtypes",
            doc.ROUNDING: "rounding",
            f"{doc.INF1_COMPILER_CLI}, --fast-math": "auto_cast_types auto_cast",
            doc.NOT_PUBLISHED: "tensor_array matmul_tiles sbuf_bytes sbuf_partitions psum_bytes psum_partitions "
            "psum_banks num_dma_engines dma_engine_bytes_per_s port_conflicts",
        }
    ),
)

_V2 = CoreSpec(
    name="NeuronCore-v2",
    generation=2,
    tensor=_engine(
        "tensor",
        2.8,
        {**dict.fromkeys((*RATE_16BIT, *CFP8), 92.0), "float32": 23.0},
        {"other": 2 * 128},
        clock_source=doc.NKI_V2,
        tflops_source=doc.NKI_V2,
    ),
    vector=_engine("vector", 1.12, {"float32": 2.3}, {"other": 128}, clock_source=doc.NKI_V2, tflops_source=doc.NC_V2),
    scalar=_engine("scalar", 1.4, {"float32": 2.9}, {"other": 128}, clock_source=doc.NKI_V2, tflops_source=doc.NC_V2),
    gpsimd=_gpsimd(1.4, doc.NKI_V2, lanes=128, tcm_bytes=64 * KIB),
    tensor_array=(128, 128),
    matmul_tiles={"dense": (128, 128, 512)},
    accumulate_dtypes=("float32",),
    sbuf_bytes=24 * MIB,
    sbuf_partitions=128,
    psum_bytes=2 * MIB,
    psum_partitions=128,
    psum_banks=8,
    num_dma_engines=16,
    dma_engine_bytes_per_s=17e9,
    rounding=("rne", "stochastic"),
    dtypes=("float32", *RATE_16BIT, *CFP8, *_INTEGERS),
    auto_cast_types=("bf16", "fp16", "tf32"),
    auto_cast="none",
    port_conflicts=(("vector", "gpsimd", "sbuf"), ("vector", "scalar", "psum")),
    sources=cite(
        {
            doc.NC_V2: "generation rounding",
            doc.NKI_V2: "tensor_array matmul_tiles accumulate_dtypes sbuf_bytes sbuf_partitions psum_bytes "
            "psum_partitions psum_banks num_dma_engines port_conflicts",
            doc.NKI_DMA: "dma_engine_bytes_per_s",
            doc.COMPILER_CLI: "auto_cast_types auto_cast",
            f"{doc.DATA_TYPES}; {doc.NKI_DTYPES}": "dtypes",
        }
    ),
)

_V3 = revised(
    _V2,
    {
        doc.NC_V3: "generation rounding",
        doc.NKI_V3: "tensor_array matmul_tiles sbuf_bytes sbuf_partitions port_conflicts num_dma_engines psum_bytes",
    },
    name="NeuronCore-v3",
    generation=3,
    tensor=_engine(
        "tensor",
        2.4,
        {**dict.fromkeys((*RATE_16BIT, "float8_e3m4"), 79.0), **dict.fromkeys(_FP8, 158.0), "float32": 20.0},
        {**dict.fromkeys(_FP8, 4 * 128), "other": 2 * 128},
        clock_source=doc.NKI_V3,
        tflops_source=doc.NKI_V3,
        sparse_tflops=dict.fromkeys((*RATE_16BIT, *_FP8), 316.0),
    ),
    vector=_engine(
        "vector",
        0.96,
        {"float32": 1.0},
        {"bfloat16": 512, "float16": 512, "other": 256},
        clock_source=doc.NKI_V3,
        tflops_source=doc.NKI_V3,
    ),
    scalar=_engine("scalar", 1.2, {"float32": 1.2}, {"other": 128}, clock_source=doc.NKI_V3, tflops_source=doc.NC_V3),
    gpsimd=_gpsimd(1.2, doc.NKI_V3, dma_bytes_per_s=307e9),
    matmul_tiles={"dense": (128, 128, 512), "fp8_double_row": (256, 128, 512)},
    sbuf_bytes=28 * MIB,
    dma_engine_bytes_per_s=23e9,
    auto_cast_types=("bf16", "fp16", "tf32", "fp8_e4m3"),
    port_conflicts=(),
)

_SHORT_V4 = ("bfloat16", "float16", *_FP8)
_engine_v4 = functools.partial(_engine, clock_source=doc.NKI_V4, tflops_source=doc.NC_V4)

_V4 = revised(
    _V3,
    {
        doc.NC_V4: "generation rounding",
        doc.NKI_V4: "tensor_array matmul_tiles sbuf_bytes accumulate_dtypes psum_bytes",
        f"{doc.NC_V4}; {doc.NKI_DTYPES}; {doc.ERROR_FP8}": "dtypes",
        f"{doc.COMPILER_CLI}, for trn2; the page does not list trn3 yet": "auto_cast_types",
    },
    name="NeuronCore-v4",
    generation=4,
    tensor=_engine_v4(
        "tensor",
        2.4,
        {**dict.fromkeys(RATE_16BIT, 79.0), "mxfp8": 315.0, "mxfp4": 315.0, "float32": 20.0},
        {"mxfp8": 8 * 128, "other": 2 * 128},
        sparse_tflops=dict.fromkeys(RATE_16BIT, 315.0),
    ),
    vector=_engine_v4("vector", 1.2, {"float32": 1.2}, {**dict.fromkeys(_SHORT_V4, 512), "other": 256}),
    scalar=_engine_v4("scalar", 1.2, {"float32": 1.2}, {**dict.fromkeys(_SHORT_V4, 256), "other": 128}),
    gpsimd=_gpsimd(1.2, doc.NKI_V4, lanes=128),
    matmul_tiles={**_V3.matmul_tiles, "mx": (512, 128, 512)},
    accumulate_dtypes=("float32", "bfloat16"),
    sbuf_bytes=32 * MIB,
    dma_engine_bytes_per_s=33e9,
    dtypes=(*_V3.dtypes, "float8_e4m3fn", "float8_e8m0fnu", "mxfp8", "mxfp4"),
)

CORES: Mapping[str, CoreSpec] = {core.name: core for core in (_V1, _V2, _V3, _V4)}
