"""Rules that judge an operator by its name alone, or by the dtype of one tensor: one row for each kind of call."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.base.core import Verdict

FLOATS, IMAGE = torch.randn(4, 4), torch.randn(1, 2, 8, 8)
MATRICES = (torch.eye(4), torch.randn(4, 2))


def integers(dtype, *shape):
    return torch.ones(shape or (4,), dtype=dtype)


def grouped(ends):
    return torch._grouped_mm(integers(torch.bfloat16, 16, 16), integers(torch.bfloat16, 2, 16, 16), offs=ends)


def dft_power(x):
    angle = torch.arange(4.0)[:, None] * torch.arange(4.0) * (2 * math.pi / 4)
    return (x @ angle.cos()) ** 2 + (x @ angle.sin()) ** 2


REASONS = {
    "add": (lambda x: x + 1, "maps to Add"),
    "add in place": (lambda x: x.add_(1), "maps to Add"),
    "rsqrt": (torch.rsqrt, "maps to Rsqrt"),
    "comparison": (lambda x: x > 0, "maps to Compare"),
    "relu": (F.relu, "maps to Max"),
    "silu": (F.silu, "maps to AwsNeuronSilu"),
    "gelu": (F.gelu, "maps to AwsNeuronGelu"),
    "erf": (torch.erf, "maps to AwsNeuronErf"),
    "sigmoid": (torch.sigmoid, "made of Neg, Exp, Add, Div"),
    "view": (lambda x: x.view(16), "maps to Reshape"),
    "transpose": (lambda x: x.transpose(0, 1), "maps to Transpose"),
    "expand": (lambda x: x.expand(2, 4, 4), "maps to Broadcast"),
    "slice": (lambda x: x[1:3], "maps to Slice"),
    "cast": (lambda x: x.to(torch.bfloat16), "maps to ConvertElementType"),
    "cat": (lambda x: torch.cat([x, x]), "maps to Concatenate"),
    "arange": (lambda x: x + torch.arange(4), "maps to Iota"),
    "zeros_like": (lambda x: x + torch.zeros_like(x), "maps to Constant"),
    "full": (lambda x: x + torch.full((4,), 2.0), "maps to Constant"),
    "new_ones": (lambda x: x + x.new_ones(4), "maps to Constant"),
    "sum": (lambda x: x.sum(-1), "maps to Reduce"),
    "mean": (lambda x: x.mean(-1), "made of Reduce, Div"),
    "argmax": (lambda x: x.argmax(-1), "maps to AwsNeuronArgMax"),
    "max": (lambda x: x.max(), "maps to Reduce"),
    "max of two": (lambda x: torch.max(x, x), "maps to Max"),
    "min along a dimension": (lambda x: x.min(-1).indices, "made of Reduce, AwsNeuronArgMin"),
    "cumsum": (lambda x: x.cumsum(-1), "maps to ReduceWindow"),
    "rand_like": (torch.rand_like, "maps to RngUniform"),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False), "does no work"),
    "dropout in training": (lambda x: F.dropout(x, 0.5, training=True), "made of AwsNeuronDropoutMaskV1, Mul"),
    "dropout of nothing": (lambda x: F.dropout(x, 0.0, training=True), "does no work"),
    "one_hot": (lambda x: F.one_hot(x.long(), 4), "made of Iota, Compare, ConvertElementType"),
    "topk": (lambda x: torch.topk(x, 2).values, "maps to AwsNeuronTopK"),
    "topk of bfloat16": (lambda x: torch.topk(x.bfloat16(), 2).values, "maps to AwsNeuronTopK"),
    "lstm": (nn.LSTM(4, 4), "made of DotGeneral, Add, Neg, Exp, Div, Tanh, Mul"),
    "gru": (nn.GRU(4, 4), "made of DotGeneral, Add, Neg, Exp, Div, Tanh, Mul"),
    "rnn": (nn.RNN(4, 4), "made of DotGeneral, Add, Tanh"),
    "power": (lambda x: x**2, "maps to Pow"),
    "power of bfloat16": (lambda x: x.bfloat16() ** 2, "maps to Pow"),
    "power of int32": (lambda x: x.int() ** 2, "maps to Pow"),
    "real power of int64": (lambda x: x.long() ** 0.5, "maps to Pow"),
    "shift": (lambda x: torch.bitwise_right_shift(x.int(), 1), "maps to ShiftRightArithmetic"),
    "shift operator": (lambda x: x.int() >> 1, "maps to ShiftRightArithmetic"),
}


@pytest.mark.parametrize(("function", "reason"), REASONS.values(), ids=REASONS)
def test_call_names_its_instructions(check, function, reason):
    report = check(function, FLOATS)
    (verdict,) = {ruling.verdict for ruling in report.rulings if ruling.reason == reason}
    assert verdict is (Verdict.DECOMPOSED if ", " in reason else Verdict.NATIVE) and not report.refused


ACCEPTED = {
    **{type(m).__name__: (m, torch.randn(2, 4, 8)) for m in (nn.LayerNorm(8), nn.RMSNorm(8), nn.GroupNorm(2, 4))},
    **{type(m).__name__: (m, torch.randn(2, 4, 8)) for m in (nn.BatchNorm1d(4), nn.InstanceNorm1d(4), nn.Softmax(-1))},
    "LogSoftmax": (nn.LogSoftmax(-1), FLOATS),
    "std": (lambda x: x.std(-1), FLOATS),
    "dft": (dft_power, FLOATS),
    "max_pool": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "max_pool with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], IMAGE),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), IMAGE),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), IMAGE),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), IMAGE),
    "inverse": (lambda a, b: torch.inverse(a) @ b, *MATRICES),
    "norm": (lambda a, b: torch.linalg.vector_norm(a) * b, *MATRICES),
    "multi_dot": (lambda a, b: torch.linalg.multi_dot([a, a, b]), *MATRICES),
    "grouped matmul": (grouped, torch.tensor([8, 16], dtype=torch.int32)),
    "one_hot": (lambda x: F.one_hot(x, 4).sum(0), integers(torch.int64)),
    "topk of cast integers": (lambda x: torch.topk(x.float(), 2).values, integers(torch.int32)),
}


@pytest.mark.parametrize(("function", "inputs"), [(f, inputs) for f, *inputs in ACCEPTED.values()], ids=ACCEPTED)
def test_accepted(check, function, inputs):
    report = check(function, *inputs)
    assert not report.refused
    if isinstance(function, nn.Module):
        assert any(ruling.rule == "normalization" for ruling in report.rulings)


def shifts(kind):
    return {
        f"{kind} shift": (torch.bitwise_right_shift, [integers(kind)] * 2, "NCC_EVRF022", str(kind)[6:]),
        f"{kind} shift operator": (lambda x, by: x >> by, [integers(kind)] * 2, "NCC_EVRF022", str(kind)[6:]),
    }


DOUBLES = FLOATS.double()
REFUSED = {
    "complex": (lambda x: x * x, [FLOATS.to(torch.complex64)], "NCC_EVRF004", ""),
    "view as complex": (torch.view_as_complex, [torch.randn(4, 2)], "NCC_EVRF004", ""),
    "digamma": (torch.digamma, [FLOATS], "NCC_EUOC002", ""),
    "full of float64": (lambda x: x + torch.full((4,), 2.0, dtype=torch.float64).float(), [FLOATS], "NCC_ESPP004", ""),
    "softmax of float64": (lambda x: F.softmax(x, -1, dtype=torch.float64).float(), [FLOATS], "NCC_ESPP004", ""),
    "gru of float64": (nn.GRU(4, 4, dtype=torch.float64), [DOUBLES], "NCC_ESPP004", ""),
    "randperm": (lambda x: x + torch.randperm(4), [FLOATS], "NCC_EVRF001", ""),
    "mode": (lambda x: x.mode(-1).values, [FLOATS], "NCC_EVRF001", ""),
    "multinomial": (lambda x: torch.multinomial(x, 1), [torch.ones(4)], "NCC_EUOC002", "host"),
    "histc": (lambda x: torch.histc(x, 4, 0, 3), [FLOATS], "NCC_EUOC002", "one_hot"),
    "topk of int32": (lambda x: torch.topk(x, 2).values, [integers(torch.int32)], "NCC_EVRF013", "float32"),
    "topk of int64": (lambda x: torch.topk(x, 2).values, [integers(torch.int64)], "NCC_EVRF013", "float32"),
    "power of int64": (lambda x: x**2, [integers(torch.int64)], "NCC_EVRF062", "--implicit-integer-downcast=pow"),
    **shifts(torch.int8),
    **shifts(torch.int16),
    **shifts(torch.int64),
    "dilated max_pool2d": (lambda x: F.max_pool2d(x, 2, dilation=2), [IMAGE], "NCC_EVRF018", "dilation 2"),
    "dilated max_pool2d with indices": (
        lambda x: F.max_pool2d(x, 2, dilation=(1, 2), return_indices=True)[0],
        [IMAGE],
        "NCC_EVRF018",
        "dilation 2",
    ),
    "dilated max_pool1d": (lambda x: F.max_pool1d(x[0], 2, dilation=2), [IMAGE], "NCC_EVRF018", "dilation 2"),
    "triangular_solve": (lambda a, b: torch.triangular_solve(b, a).solution, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "solve": (torch.linalg.solve, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "cholesky": (lambda a, b: torch.linalg.cholesky(a) @ b, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "qr": (lambda a, b: torch.linalg.qr(a).Q @ b, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "svd": (lambda a, b: torch.linalg.svd(a).S, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "eigh": (lambda a, b: torch.linalg.eigh(a).eigenvalues, MATRICES, "NCC_EVRF001", "torch.inverse"),
    "det": (lambda a, b: torch.linalg.det(a) * b, MATRICES, "NCC_EVRF001", "torch.inverse"),
}


@pytest.mark.parametrize(("function", "inputs", "code", "part"), REFUSED.values(), ids=REFUSED)
def test_refused(check, function, inputs, code, part):
    result = check(function, *inputs).refused
    assert {ruling.code for ruling in result} == {code} and part in result[0].reason + result[0].remedy


@pytest.mark.parametrize("transform", [torch.fft.fft, torch.fft.rfft, torch.fft.fft2], ids=["fft", "rfft", "fft2"])
def test_fourier_transforms_are_refused_as_such(check, transform):
    result = check(lambda x: transform(x).abs(), FLOATS).refused
    assert result[0].op.startswith("aten.fft_")
    assert [ruling.code for ruling in result] == ["NCC_EVRF001", "NCC_EVRF004"]  # abs of its complex result


def test_tuple_results_are_bookkeeping(check):
    rulings = check(lambda x: x.chunk(2)[1] + 1, FLOATS).rulings
    assert {ruling.rule for ruling in rulings} == {"view", "bookkeeping", "arithmetic"}
