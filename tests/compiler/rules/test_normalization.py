"""Softmax and normalisation layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize(
    "module",
    [
        nn.LayerNorm(8),
        nn.RMSNorm(8),
        nn.GroupNorm(2, 4),
        nn.BatchNorm1d(4),
        nn.InstanceNorm1d(4),
        nn.Softmax(-1),
        nn.LogSoftmax(-1),
    ],
    ids=lambda module: type(module).__name__,
)
def test_accepted(check, module):
    report = check(module, torch.randn(2, 4, 8))
    assert not report.refused
    assert any(r.rule == "normalization" for r in report.rulings)


def test_softmax_in_float64_is_refused(check):
    refused = check(lambda x: F.softmax(x, -1, dtype=torch.float64).float(), torch.randn(4)).refused
    assert refused[0].op == "aten.softmax.int"
    assert refused[0].code == "NCC_ESPP004"
