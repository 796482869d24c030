"""The report of `analyze`, as the vendor documents it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from optimum_neuron.errors import CaptureError
from optimum_neuron.tracing import analyze

KEYS = "torch_neuronx_version neuronx_cc_version support_percentage supported_operators unsupported_operators"


def test_supported_model(mlp):
    report = analyze(mlp, torch.rand(5, 12))
    assert list(report) == KEYS.split()
    assert report["support_percentage"] == "100.00%"
    assert report["supported_operators"] == {"aten::linear": 3, "aten::relu": 2, "aten::log_softmax": 1}
    assert report["unsupported_operators"] == []


class Fourier(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


def test_unsupported_operator_with_its_place_and_graph():
    report = analyze(Fourier(), torch.rand(4, 8))
    assert (report["support_percentage"], report["supported_operators"]) == ("0.00%", {})
    (result,) = report["unsupported_operators"]
    assert (result["kind"], result["failureAt"]) == ("aten::fft_fft", "neuronx-cc")
    assert "test_analysis.py:" in result["call"] and "NCC_EVRF001" in result["call"]
    assert result["opGraph"].startswith("graph(%") and "complex64[4, 8] = aten::fft_fft(" in result["opGraph"]


def test_capture_errors_come_before_compile():
    report = analyze(lambda x: torch.nonzero(x), torch.rand(4))
    assert [op["failureAt"] for op in report["unsupported_operators"]] == ["Lowering to HLO"]


def test_shares_count_calls_without_ignored_operators():
    def function(x):
        return torch.sort(x.relu().tanh() + 1)[0]

    assert analyze(function, torch.rand(4))["support_percentage"] == "75.00%"
    assert analyze(function, torch.rand(4), additional_ignored_ops={"aten::sort"})["support_percentage"] == "100.00%"
    assert analyze(lambda x: x, torch.rand(4))["support_percentage"] == "100.00%"


def test_report_is_kept_unless_cleaned_up(tmp_path):
    report = analyze(Fourier(), torch.rand(4, 8), compiler_workdir=tmp_path / "work")
    assert json.loads((tmp_path / "work" / "analysis.json").read_text()) == report
    analyze(Fourier(), torch.rand(4, 8), compiler_workdir=tmp_path / "clean", cleanup=True)
    assert not (tmp_path / "clean").exists()


def test_arguments_without_effect_are_reported(mlp):
    with pytest.warns(UserWarning, match=r"max_workers \(.*is_hf_transformers \("):
        analyze(mlp, torch.rand(5, 12), max_workers=8, is_hf_transformers=True)


def test_dynamic_code_cannot_be_analyzed():
    with pytest.raises(CaptureError):
        analyze(lambda x: x if x.sum() > 0 else -x, torch.rand(3))
