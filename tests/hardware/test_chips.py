"""Chip numbers, typed again from the documents, against their cores."""

from __future__ import annotations

import pytest

from optimum_neuron.hardware import CHIPS


@pytest.mark.parametrize(
    ("chip", "cores", "hbm_gib", "tb_per_s", "bfloat16"),
    [
        ("Inferentia", 4, 8, 50 * 2**30 / 1e12, 64),
        ("Inferentia2", 2, 32, 0.82, 190),
        ("Trainium", 2, 32, 0.82, 190),
        ("Trainium2", 8, 96, 2.9, 667),
        ("Trainium3", 8, 144, 4.9, 671),
    ],
)
def test_facts(chip: str, cores: int, hbm_gib: int, tb_per_s: float, bfloat16: float) -> None:
    spec = CHIPS[chip]
    assert (spec.num_cores, spec.hbm_bytes, spec.tflops["bfloat16"]) == (cores, hbm_gib * 2**30, bfloat16)
    assert spec.hbm_bytes_per_s == pytest.approx(tb_per_s * 1e12)


def test_links() -> None:
    assert [chip.link_bytes_per_s for chip in CHIPS.values()] == [32 * 2**30, 192e9, 384e9, 1.28e12, 2.56e12]
    assert [chip.num_links for chip in CHIPS.values()] == [None, 2, 4, 4, 4]


def test_chip_peaks_are_close_to_cores_times_core_and_the_gap_is_explained() -> None:
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


def test_dma_engines_belong_to_the_cores() -> None:
    for chip in CHIPS.values():
        if chip.num_dma_engines is not None:
            assert chip.core.num_dma_engines is not None
            assert chip.num_dma_engines == chip.num_cores * chip.core.num_dma_engines


def test_logical_cores_exist_from_trainium2_on() -> None:
    assert {name: (chip.lncs, chip.default_lnc) for name, chip in CHIPS.items()} == {
        "Inferentia": ((1,), 1),
        "Inferentia2": ((1,), 1),
        "Trainium": ((1,), 1),
        "Trainium2": ((1, 2), 2),
        "Trainium3": ((1, 2), 2),
    }
