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


def experts(module, x, weight):
    """Return the arguments of the kernels of experts: eight of them, 128 tokens each."""
    index = torch.randint(0, len(x), (8, 128), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    return x, index, weight


@pytest.mark.full(days=2)
def test_each_step_of_the_matmul_is_equal_and_faster(library):
    lhs_T, rhs = normal(1024, 1024).bfloat16(), normal(1024, 1024).bfloat16()
    reference = (lhs_T.float().T @ rhs.float()).bfloat16()
    analyses = [analyze(step, lhs_T, rhs) for step in library("matmul").STEPS]
    for analysis in analyses:
        torch.testing.assert_close(analysis.result, reference, rtol=0.02, atol=0.02)
        assert not analysis.unwritten and all(one.overflow_line is None for one in analysis.memory)
    times = [analysis.total_us for analysis in analyses]
    assert times == sorted(times, reverse=True) and times[0] > 4 * times[-1]
    assert not analyses[-1].advice and "DMA size" in {one.topic for one in analyses[0].advice}


def test_three_ways_of_the_older_api_are_equal_and_faster(library):
    lhs_T, rhs = normal(1024, 1024).bfloat16(), normal(1024, 1024).bfloat16()
    reference = (lhs_T.float().T @ rhs.float()).bfloat16()
    analyses = [analyze(way, lhs_T, rhs) for way in library("matmul_older").WAYS]
    for analysis in analyses:
        torch.testing.assert_close(analysis.result, reference, rtol=0.02, atol=0.02)
        assert not analysis.unwritten and not analysis.races
    times = [analysis.total_us for analysis in analyses]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04)])
def test_norm_and_projections(library, dtype, tolerance):
    x, gain, weight = normal(256, 256).to(dtype), (1 + normal(256) / 8).to(dtype), (normal(256, 1024) / 16).to(dtype)
    reference = F.rms_norm(x.float(), (256,), gain.float(), 1e-6) @ weight.float()
    for step in library("projections").STEPS:
        analysis = analyze(step, x, gain, weight)
        assert analysis.result.dtype == dtype and not analysis.unwritten and not analysis.races
        torch.testing.assert_close(analysis.result.float(), reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04)])
def test_gather_of_experts(library, dtype, tolerance):
    x, index, weight = experts(library("experts"), normal(256, 256).to(dtype), (normal(8, 256, 512) / 16).to(dtype))
    reference = torch.einsum("ech,ehd->ecd", x.float()[index.long()], weight.float())
    for step in library("experts").STEPS:
        analysis = analyze(step, x, index, weight)
        assert analysis.result.dtype == dtype and not analysis.unwritten and not analysis.races
        torch.testing.assert_close(analysis.result.float(), reference, rtol=tolerance, atol=tolerance)


def lines_of_the_page(library):
    """Yield the lines of README.md about simulated times."""
    square = torch.ones(1024, 1024, dtype=torch.bfloat16)
    weights, gain = torch.ones(1024, 1536, dtype=torch.bfloat16), torch.ones(1024, dtype=torch.bfloat16)
    runs = [(step, (square, square)) for step in (*library("matmul").STEPS, *library("matmul_older").WAYS)]
    runs += [(step, (square, gain, weights)) for step in library("projections").STEPS]
    each = experts(library("experts"), square, torch.ones(8, 1024, 1024, dtype=torch.bfloat16))
    runs += [(step, each) for step in library("experts").STEPS]
    for step, arguments in runs:
        analysis = analyze(step, *arguments)
        moved, busiest = analysis.roofline.hbm_bytes / 2**20, max(analysis.busy_us, key=analysis.busy_us.get)
        yield f"{step.__name__:12} {analysis.total_us:6.0f} us  {moved:3.0f} MiB moved  {busiest} is busiest"


@pytest.mark.full(days=4)
def test_page_has_the_times_of_the_steps(library, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    page = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines_of_the_page(library) if line not in page] == []


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
