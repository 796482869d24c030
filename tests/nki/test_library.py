"""The kernels of `models/kernels/`, against torch, and what the analysis says of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.nki import analyze

FOLDER = Path(__file__).resolve().parents[2] / "models" / "kernels"


@pytest.fixture
def library(monkeypatch):
    """Return a function that imports a module of the folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_each_step_of_the_matmul_is_equal_and_faster(library):
    lhs_T, rhs = normal(512, 1024).bfloat16(), normal(512, 1024).bfloat16()
    reference = (lhs_T.float().T @ rhs.float()).bfloat16()
    analyses = [analyze(step, lhs_T, rhs) for step in library("matmul").STEPS]
    for analysis in analyses:
        torch.testing.assert_close(analysis.result, reference, rtol=0.02, atol=0.02)
        assert not analysis.unwritten and all(one.overflow_line is None for one in analysis.memory)
    times = [analysis.total_us for analysis in analyses]
    assert times == sorted(times, reverse=True) and times[0] > 8 * times[-1]
    assert not analyses[-1].advice and "DMA size" in {one.topic for one in analyses[0].advice}


def test_page_has_the_times_of_the_steps(library):
    lhs_T, rhs = (torch.ones(1024, 1024, dtype=torch.bfloat16) for _ in range(2))
    page = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    for step in library("matmul").STEPS:
        analysis = analyze(step, lhs_T, rhs)
        moved, busiest = analysis.roofline.hbm_bytes / 2**20, max(analysis.busy_us, key=analysis.busy_us.get)
        assert f"{step.__name__:12} {analysis.total_us:6.0f} us  {moved:3.0f} MiB moved  {busiest} is busiest" in page


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_flash_attention(library, dtype, tolerance):
    q_NSD, k_KSD, v_KSD = normal(2, 640, 64).to(dtype), *(normal(2, 1, 640, 64)[i].to(dtype) for i in range(2))
    result, _ = library("attention").flash_attention(q_NSD.transpose(1, 2), k_KSD.transpose(1, 2), v_KSD)
    states = (x[None].float() for x in (q_NSD, k_KSD, v_KSD))
    reference = F.scaled_dot_product_attention(*states, is_causal=True, enable_gqa=True)[0]
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), reference, rtol=tolerance, atol=tolerance)


def test_rows(library):
    x, weight, rows = 3 * normal(256, 96), normal(96), library("rows")
    torch.testing.assert_close(rows.rms_norm(x, weight, 0.01), F.rms_norm(x, (96,), weight, 0.01))
    torch.testing.assert_close(rows.softmax(x), x.softmax(1))
