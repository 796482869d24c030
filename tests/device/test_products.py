"""Float32 matmuls by oneDNN: when they are chosen, their precision, and the matmuls left to torch's BLAS."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.device import numerics, products
from optimum_neuron.errors import ConfigError
from tests.raising import raises

ROWS, CONTRACTED, COLUMNS = 256, 192, 128
AMD = {"cpu_name": "AMD EPYC", "avx512_f": True}
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture(autouse=True)
def by_onednn():
    """Products by oneDNN, whatever this CPU is."""
    if not torch.backends.mkldnn.is_available():
        yield
        return
    with products.use("onednn"):
        yield


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes in the same layout on the device; `to` would make expanded tensors dense."""
    return torch.ops.neuron_sim.alias_neuron(tensor.detach(), 0)


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Root of the mean squared error over that of the exact values."""
    return ((actual.detach().cpu().double() - exact).norm() / exact.norm()).item()


LAYOUTS = {
    "rows": lambda height, width: random(height, width),
    "columns": lambda height, width: random(width, height).t(),
    "slice": lambda height, width: random(height, width + 5)[:, 3 : 3 + width],
    "slice of columns": lambda height, width: random(width, height + 5)[:, 3 : 3 + height].t(),
    "every other column": lambda height, width: random(height, 2 * width)[:, ::2],
    "one row expanded": lambda height, width: random(1, width).expand(height, width),
    "one column expanded": lambda height, width: random(height, 1).expand(height, width),
    "one number expanded": lambda height, width: torch.ones(()).expand(height, width),
    "overlapping": lambda height, width: random(2 * height + width).as_strided((height, width), (2, 1)),
    "unaligned": lambda height, width: random(height * width + 1)[1:].view(height, width),
}
BIASES = {
    "none": lambda: None,
    "dense": lambda: random(COLUMNS),
    "every other": lambda: random(2 * COLUMNS)[::2],
    "one number": lambda: random(1),
    "one number expanded": lambda: random(1).expand(COLUMNS),
    "a matrix": lambda: random(ROWS, COLUMNS),
    "a column": lambda: random(ROWS, 1),
}


def product(left, right, bias=None, **scalars):
    return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right, **scalars)


def check(left, right, bias=None, **scalars) -> torch.Tensor:
    """The device's product, within twice the CPU's error, in a dense result; queued it has the same bits."""
    inputs = [value if value is None else on_device(value) for value in (left, right, bias)]
    wide = [value if value is None else value.double() for value in (left, right, bias)]
    exact, expected = product(*wide, **scalars), product(left, right, bias, **scalars)
    actual = product(*inputs, **scalars)
    assert actual.stride() == expected.stride() and actual.dtype is torch.float32
    assert relative_error(actual, exact) <= max(2 * relative_error(expected, exact), 3e-7)
    with torch.neuron.adaptive_eager(True):
        assert torch.equal(product(*inputs, **scalars), actual)
    return actual


@pytest.mark.full(days=5)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_operands_of_every_layout(left, right):
    check(LAYOUTS[left](ROWS, CONTRACTED), LAYOUTS[right](CONTRACTED, COLUMNS))


@pytest.mark.parametrize("bias", BIASES)
def test_biases_of_every_layout(bias):
    check(random(ROWS, CONTRACTED), random(COLUMNS, CONTRACTED).t(), BIASES[bias]())


@pytest.mark.parametrize("scalars", [{"beta": 0.5}, {"alpha": 2.0}, {"beta": 0}], ids=str)
def test_factors(scalars):
    check(random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS), random(COLUMNS), **scalars)


@pytest.mark.parametrize(
    "sizes", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (1, 1, 1), (1, 2048, 1024), (4096, 1024, 1)], ids=str
)
def test_empty_and_thin_matmuls_match_cpu_bitwise(sizes):
    rows, contracted, columns = sizes
    left, right = random(rows, contracted), random(contracted, columns)
    assert not products.is_worthwhile(*sizes)
    assert torch.equal(torch.mm(on_device(left), on_device(right)).cpu(), left @ right)


@needs_onednn
def test_large_products_match_onednn_and_small_ones_cpu_bitwise(monkeypatch):
    # Long sums, whose last digits depend on the order of additions.
    left, right = random(64, 3001), random(3001, 64)
    onednn = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
    assert products.is_worthwhile(64, 3001, 64) and not torch.equal(onednn, left @ right)
    actual = on_device(left), on_device(right)
    assert torch.equal((actual[0] @ actual[1]).cpu(), onednn)
    assert torch.equal((actual[0][:8] @ actual[1][:, :8]).cpu(), left[:8] @ right[:, :8])
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        assert torch.equal((actual[0] @ actual[1]).cpu(), left @ right)
    with products.use("blas"):
        assert torch.equal((actual[0] @ actual[1]).cpu(), left @ right)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_match_cpu_bitwise(dtype):
    left, right = random(ROWS, CONTRACTED).to(dtype), random(CONTRACTED, COLUMNS).to(dtype)
    assert torch.equal((left.to("neuron") @ right.to("neuron")).cpu(), left @ right)


def test_out_arguments():
    left, right = random(ROWS, CONTRACTED).to("neuron"), random(CONTRACTED, COLUMNS).to("neuron")
    expected = left @ right
    for out in (torch.empty(ROWS, COLUMNS), torch.empty(COLUMNS, ROWS).t(), torch.empty(0)):
        inputs = on_device(out)
        strides = inputs.stride() if inputs.numel() else expected.stride()
        assert torch.mm(left, right, out=inputs) is inputs and inputs.stride() == strides
        torch.testing.assert_close(inputs, expected, rtol=1e-5, atol=1e-5)
    square = random(256, 256).to("neuron")
    target = square @ square
    assert torch.equal(torch.mm(square, square, out=square), target)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(left, right.t())


def test_gradients():
    reference = [random(4, 64, 256), random(512, 256), random(512)]
    actual = [value.to("neuron").requires_grad_() for value in reference]
    exact = [value.double().requires_grad_() for value in reference]
    for values in (actual, exact):
        nn.functional.linear(*values).pow(2).sum().backward()
    for result, expected in zip(actual, exact, strict=True):
        assert result.grad.is_contiguous() and relative_error(result.grad, expected.grad) < 1e-6


def test_autocast_matches_cpu_bitwise():
    x, weight = random(64, 256), random(512, 256)
    with torch.autocast("neuron"):
        actual = nn.functional.linear(x.to("neuron"), weight.to("neuron"))
    with torch.autocast("cpu"):
        assert torch.equal(actual.cpu(), nn.functional.linear(x, weight))
    assert actual.dtype is torch.bfloat16


def test_emulated_operands_are_rounded():
    left, right = random(ROWS, CONTRACTED), random(CONTRACTED, COLUMNS)
    rounded = left.bfloat16().double() @ right.bfloat16().double()
    with numerics.use("emulated"):
        actual = left.to("neuron") @ right.to("neuron")
        narrow = left.bfloat16().to("neuron") @ right.bfloat16().to("neuron")
    assert relative_error(actual, rounded) < 3e-7 < 1e-4 < relative_error(actual, left.double() @ right.double())
    assert torch.equal(narrow, actual.bfloat16())


@pytest.mark.parametrize(
    ("changed", "has_mkl", "has_onednn", "value", "reason"),
    [
        ({}, True, True, "onednn", "AMD EPYC with AVX-512"),
        ({"cpu_name": "Intel Xeon Platinum 8488C"}, True, True, "blas", "Intel Xeon"),
        ({"avx512_f": False}, True, True, "blas", "without AVX-512"),
        ({"avx512_f": None}, True, True, "blas", "without AVX-512"),
        ({}, False, True, "blas", "another BLAS than MKL"),
        ({}, True, False, "blas", "without oneDNN"),
    ],
)
def test_choice_and_its_reason(changed, has_mkl, has_onednn, value, reason):
    choice = products.choose(capabilities={**AMD, **changed}, has_mkl=has_mkl, has_onednn=has_onednn)
    assert choice.value == value and reason in choice.reason
    assert [rejected.candidate for rejected in choice.rejected] == [{"blas": "onednn", "onednn": "blas"}[value]]


def test_unknown_libraries_are_errors():
    with raises(ConfigError, option="library", value="onednm"), products.use("onednm"):
        pass
    with products.use("blas"):
        assert products.current().value == "blas"
    assert products.current().reason == "set by products.use"


def test_process_chooses_by_its_cpu(python):
    program = "import torch; torch.ones(1, device='neuron'); from optimum_neuron.device import products\n"
    result = python(program + "print(products.current() == products.choose())")
    assert result.stdout == "True\n", result.stderr
