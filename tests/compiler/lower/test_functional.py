"""The graph for Inductor: functional, with writes at its end and separate results."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures
from optimum_neuron.compiler.lower.functional import trace
from tests.programs import body_of, operators, spec


def features(has_bf16_dot=False):
    return CpuFeatures(isa="AVX512", has_bf16_dot=has_bf16_dot)


@pytest.mark.parametrize("has_bf16_dot", [False, True])
def test_traced_subgraph_writes_in_place(has_bf16_dot):
    def function(cache, x, w, query, mask):
        cache[:, :, 1:2].copy_(F.linear(x, w).view(1, 1, 1, 8))
        return F.scaled_dot_product_attention(query, cache, cache, mask), x + 1

    shapes = [spec(1, 1, 4, 8), spec(1, 16), spec(8, 16), spec(1, 1, 1, 8), spec(1, 1, 1, 4, dtype="bool")]
    body = body_of(function, *shapes, num_outputs=2)
    rest = [torch.randn(shape.shape) for shape in shapes[1:4]] + [torch.tensor([[[[True, True, False, True]]]])]
    cache = torch.randn(1, 1, 4, 8)
    actual, reference = cache.clone(), cache.clone()
    traced_model = trace(body, features(has_bf16_dot)).graph_module
    results, expected = traced_model(actual, *rest), body(reference, *rest)
    assert not torch.equal(actual, cache)
    torch.testing.assert_close(actual, reference)
    torch.testing.assert_close(results, expected)
    written = [name for name in operators(traced_model) if name.endswith("_.default")]
    assert written == ["aten.copy_.default"] and operators(traced_model)[-1] == "aten.copy_.default"


def test_results_do_not_share_memory():
    body = body_of(lambda x: [x.t(), (y := x * 2), y[0]], spec(3, 4), num_outputs=3)
    traced_model = trace(body, features())
    x = torch.randn(3, 4)
    results = traced_model.graph_module(x)
    assert all(result.is_contiguous() for result in results)
    assert len({result.untyped_storage().data_ptr() for result in (x, *results)}) == 4
    for result, expected in zip(results, [x.t(), x * 2, x[0] * 2], strict=True):
        assert torch.equal(result, expected)


def test_images_keep_requested_memory_format():
    body = body_of(lambda x: x + 1, spec(2, 3, 4, 5))
    traced_model = trace(body, features(), channels_last=([0], [0]))
    assert traced_model.inputs[0].is_contiguous(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    (result,) = traced_model.graph_module(x)
    assert result.is_contiguous(memory_format=torch.channels_last) and torch.equal(result, x + 1)
    (plain,) = trace(body, features()).graph_module(x.contiguous())
    assert plain.is_contiguous()
