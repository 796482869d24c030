"""The five chips, number by number.

Peak rates are the published ones of the chip. They are a few per cent above cores x core, and published utilisation
figures divide by them: see `docs/hardware.md`.

    >>> from optimum_neuron.hardware import CHIPS
    >>> CHIPS["Trainium2"].hbm_bytes // 2**30, CHIPS["Trainium2"].default_lnc
    (96, 2)
"""

from __future__ import annotations

from collections.abc import Mapping

from . import documents as doc
from .cores import CFP8, CORES, RATE_16BIT
from .specs import GIB, ChipSpec, cite, revised

_INFERENTIA = ChipSpec(
    name="Inferentia",
    core=CORES["NeuronCore-v1"],
    num_cores=4,
    tflops={"bfloat16": 64.0, "float16": 64.0, "int8": 128.0},
    sparse_tflops={},
    memory="DRAM",
    hbm_bytes=8 * GIB,
    num_hbm_stacks=None,
    hbm_bytes_per_s=50.0 * GIB,
    num_dma_engines=None,
    dma_bytes_per_s=None,
    num_cc_cores=None,
    link_name="NeuronLink-v1",
    num_links=None,
    link_bytes_per_s=32.0 * GIB,
    topology="chain",
    lncs=(1,),
    default_lnc=1,
    sources=cite(
        {
            doc.INFERENTIA: "num_cores tflops memory hbm_bytes hbm_bytes_per_s link_name topology",
            doc.INF1: "link_bytes_per_s",
            doc.LNC: "lncs default_lnc",
            "no structured sparsity before Trainium2": "sparse_tflops",
            doc.NOT_PUBLISHED: "num_hbm_stacks num_dma_engines dma_bytes_per_s num_cc_cores num_links",
        }
    ),
)

_INFERENTIA2 = ChipSpec(
    name="Inferentia2",
    core=CORES["NeuronCore-v2"],
    num_cores=2,
    tflops={**dict.fromkeys((*RATE_16BIT, *CFP8), 190.0), "float32": 47.5, "int8": 380.0},
    sparse_tflops={},
    memory="HBM",
    hbm_bytes=32 * GIB,
    num_hbm_stacks=2,
    hbm_bytes_per_s=820e9,
    num_dma_engines=32,
    dma_bytes_per_s=1e12,
    num_cc_cores=6,
    link_name="NeuronLink-v2",
    num_links=2,
    link_bytes_per_s=192e9,
    topology="ring",
    lncs=(1,),
    default_lnc=1,
    sources=cite(
        {
            doc.INFERENTIA2: "num_cores tflops memory hbm_bytes dma_bytes_per_s link_name",
            doc.NKI_V2: "num_hbm_stacks hbm_bytes_per_s num_dma_engines num_cc_cores num_links",
            doc.INF2: "link_bytes_per_s",
            doc.SCHEDULER: "topology",
            doc.ERROR_EARG001: "lncs default_lnc",
            "no structured sparsity before Trainium2": "sparse_tflops",
        }
    ),
)

_TRAINIUM1 = revised(
    _INFERENTIA2,
    {
        doc.TRAINIUM1: "num_cores tflops memory hbm_bytes dma_bytes_per_s link_name",
        f"{doc.TRN1}; {doc.TRAINIUM2}, interconnect comparison": "link_bytes_per_s",
        doc.TRN1: "topology",
    },
    name="Trainium",
    num_links=4,
    link_bytes_per_s=384e9,
    topology="4x4 2D torus",
)

_TRAINIUM2 = ChipSpec(
    name="Trainium2",
    core=CORES["NeuronCore-v3"],
    num_cores=8,
    tflops={
        **dict.fromkeys(RATE_16BIT, 667.0),
        **dict.fromkeys(("float8_e4m3", "float8_e5m2"), 1299.0),
        "float32": 181.0,
    },
    sparse_tflops=dict.fromkeys((*RATE_16BIT, "float8_e4m3", "float8_e5m2"), 2563.0),
    memory="HBM",
    hbm_bytes=96 * GIB,
    num_hbm_stacks=4,
    hbm_bytes_per_s=2.9e12,
    num_dma_engines=128,
    dma_bytes_per_s=3.5e12,
    num_cc_cores=16,
    link_name="NeuronLink-v3",
    num_links=4,
    link_bytes_per_s=1.28e12,
    topology="4x4 2D torus; a ring joins the servers of an UltraServer",
    lncs=(1, 2),
    default_lnc=2,
    sources=cite(
        {
            doc.TRAINIUM2: "num_cores tflops sparse_tflops memory hbm_bytes hbm_bytes_per_s dma_bytes_per_s "
            "num_cc_cores link_name link_bytes_per_s",
            doc.NKI_V3: "num_hbm_stacks num_dma_engines num_links",
            doc.TRN2: "topology",
            doc.LNC: "lncs default_lnc",
        }
    ),
)

_TRAINIUM3 = revised(
    _TRAINIUM2,
    {
        doc.TRAINIUM3: "num_cores tflops sparse_tflops memory hbm_bytes hbm_bytes_per_s dma_bytes_per_s "
        "num_cc_cores link_name link_bytes_per_s lncs",
        doc.NKI_V4: "num_hbm_stacks num_dma_engines num_links",
        doc.TRN3: "topology",
        f"{doc.LNC}, which gives 2 for Trainium2 and later": "default_lnc",
    },
    name="Trainium3",
    core=CORES["NeuronCore-v4"],
    tflops={**dict.fromkeys(RATE_16BIT, 671.0), **dict.fromkeys(("mxfp8", "mxfp4"), 2517.0), "float32": 183.0},
    sparse_tflops=dict.fromkeys(RATE_16BIT, 2517.0),
    memory="HBM3e",
    hbm_bytes=144 * GIB,
    hbm_bytes_per_s=4.9e12,
    dma_bytes_per_s=4.9e12,
    link_name="NeuronLink-v4",
    link_bytes_per_s=2.56e12,
    topology="switched all-to-all UltraServer",
)

CHIPS: Mapping[str, ChipSpec] = {
    chip.name: chip for chip in (_INFERENTIA, _INFERENTIA2, _TRAINIUM1, _TRAINIUM2, _TRAINIUM3)
}
