"""Products of a few rows: float32 sums of stored weights, the same for a row alone and beside others."""

import pytest
import torch

from optimum_neuron.compiler.lower import probe_compiler, probe_cpu
from optimum_neuron.compiler.lower.few_rows import LINEAR, MAX_FEW_ROWS, is_faster

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="it is compiled by a C++ compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(64, 30), (37, 7), (5, 2)])
def test_sums_are_exact_and_do_not_depend_on_other_rows(dtype, num_inputs, num_outputs):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, num_inputs, generator=generator)
    weight = torch.randn(num_outputs, num_inputs, generator=generator).to(dtype)
    result = LINEAR(x, weight)
    torch.testing.assert_close(result, x @ weight.float().T, atol=1e-5, rtol=1e-5)
    for row in x.flatten(0, 1)[:, None]:
        assert (LINEAR(row.contiguous(), weight) == result.flatten(0, 1)).all(1).any()


@pytest.mark.full(days=3)
def test_generated_code_calls_the_kernel(functions):
    x, weight = torch.randn(8, 64), torch.randn(16, 64)
    (result,) = functions["few rows"]([x, weight])
    torch.testing.assert_close(result, LINEAR(x, weight), atol=1e-6, rtol=1e-6)


def test_only_a_few_rows_are_faster():
    weight = torch.zeros(4, 4)
    assert not is_faster(probe_cpu(), torch.zeros(1, 4), weight)
    assert not is_faster(probe_cpu(), torch.zeros(MAX_FEW_ROWS + 1, 4), weight)
    assert not is_faster(probe_cpu(), torch.zeros(8, 4), weight.half())
