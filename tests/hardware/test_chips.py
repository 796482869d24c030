"""Chip numbers, typed again from the documents, against their cores."""

from __future__ import annotations

import pytest

from optimum_neuron.hardware import CHIPS


@pytest.mark.parametrize(
    ("chip", "cores", "lncs", "hbm_gib", "tb_per_s", "bfloat16", "links", "link_bytes_per_s"),
    [
        ("Inferentia", 4, (1,), 8, 50 * 2**30 / 1e12, 64, None, 32 * 2**30),
        ("Inferentia2", 2, (1,), 32, 0.82, 190, 2, 192e9),
        ("Trainium", 2, (1,), 32, 0.82, 190, 4, 384e9),
        ("Trainium2", 8, (1, 2), 96, 2.9, 667, 4, 1.28e12),
        ("Trainium3", 8, (1, 2), 144, 4.9, 671, 4, 2.56e12),
    ],
)
def test_facts(chip, cores, lncs, hbm_gib, tb_per_s, bfloat16, links, link_bytes_per_s):
    spec = CHIPS[chip]
    assert (spec.num_cores, spec.hbm_bytes, spec.tflops["bfloat16"]) == (cores, hbm_gib * 2**30, bfloat16)
    assert spec.hbm_bytes_per_s == pytest.approx(tb_per_s * 1e12)
    assert (spec.num_links, spec.link_bytes_per_s) == (links, link_bytes_per_s)
    assert (spec.lncs, spec.default_lnc) == (lncs, max(lncs))


def test_chip_peaks_are_close_to_sum_of_cores():
    gaps = {}
    for chip in CHIPS.values():
        tensor = chip.core.tensor
        pairs = {"dense": (chip.tflops, tensor.tflops), "sparse": (chip.sparse_tflops, tensor.sparse_tflops)}
        for kind, (of_chip, of_core) in pairs.items():
            for dtype in set(of_chip) & set(of_core):
                gaps[chip.name, kind, dtype] = of_chip[dtype] / (chip.num_cores * of_core[dtype])
    assert len(gaps) > 20
    assert all(0.99 < gap < 1.15 for gap in gaps.values()), gaps
    assert gaps["Trainium2", "dense", "bfloat16"] == pytest.approx(667 / 632)


def test_dma_engine_counts_match_cores():
    for chip in CHIPS.values():
        if chip.num_dma_engines is not None:
            assert chip.num_dma_engines == chip.num_cores * chip.core.num_dma_engines
