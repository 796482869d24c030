"""Windows may not be dilated."""

import pytest
import torch
from torch.nn import functional as F

IMAGE = torch.randn(1, 2, 8, 8)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 1),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    ],
    ids=["max", "max_indices", "avg", "adaptive", "nearest", "bilinear"],
)
def test_pooling_and_resizing_are_accepted(check, function):
    assert not check(function, IMAGE).refused


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2, dilation=2),
        lambda x: F.max_pool2d(x, 2, dilation=(1, 2), return_indices=True)[0],
        lambda x: F.max_pool1d(x[0], 2, dilation=2),
    ],
    ids=["2d", "2d_indices", "1d"],
)
def test_dilated_max_pool_is_refused(check, function):
    (refused,) = check(function, IMAGE).refused
    assert refused.code == "NCC_EVRF018"
    assert "dilation 2" in refused.reason
