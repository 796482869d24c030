"""FlexAttention on the device: results and gradients match attention with a bias on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from tests.device.conftest import OPTLEVELS

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
LENGTH = 128


def inputs(device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, heads, LENGTH, 16).to(device).requires_grad_() for heads in (4, 2, 2)]


def tilted(score, batch, head, query, key):
    return score + (query - key) * 0.01


def is_visible(batch, head, query, key):
    return (query >= key) & (query > 1)


def with_gradients(attend, device: str) -> list[torch.Tensor]:
    query, key, value = inputs(device)
    result = attend(query, key, value)
    result.square().sum().backward()
    return [tensor.detach().cpu() for tensor in (result, query.grad, key.grad, value.grad)]


@pytest.fixture(scope="module")
def expected() -> list[torch.Tensor]:
    rows, columns = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    bias = ((rows - columns) * 0.01).masked_fill(~is_visible(0, 0, rows, columns), -torch.inf)

    def attend(query, key, value):
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, enable_gqa=True)

    return with_gradients(attend, "cpu")


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("optlevel", [None, *OPTLEVELS])
def test_results_and_gradients_match_cpu(expected, optlevel):
    mask = create_block_mask(is_visible, None, None, LENGTH, LENGTH, device="neuron")
    function = flex_attention
    if optlevel is not None:
        function = torch.compile(flex_attention, backend="neuron", options={"optlevel": optlevel}, fullgraph=True)

    def attend(query, key, value):
        return function(query, key, value, score_mod=tilted, block_mask=mask, enable_gqa=True)

    for actual, reference in zip(with_gradients(attend, "neuron"), expected, strict=True):
        torch.testing.assert_close(actual, reference, atol=2e-5, rtol=1e-4)
    kinds = [graph.kind for graph in torch.neuron.compile_report().graphs]
    assert kinds == ([] if optlevel is None else ["forward", "backward"])


def test_other_devices_have_torchs_check():
    query, key, value = (tensor.to("meta") for tensor in inputs("cpu"))
    with pytest.raises(ValueError, match="only supported on"):
        flex_attention(query, key, value, enable_gqa=True)


def with_bias_and_statistics(device: str, attend) -> list[torch.Tensor]:
    """Results and gradients where the score function takes tensors from outside, and all statistics are returned."""
    query, key, value = inputs(device)
    bias = torch.linspace(-1, 1, LENGTH, device=device, requires_grad=True)
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)
    documents = torch.arange(LENGTH, device=device) // 40

    def score(score, batch, head, query, key):
        return score * slopes[head] + bias[query - key] * torch.tensor(0.5, device=device)

    def visible(batch, head, query, key):
        return (documents[query] == documents[key]) & (query >= key)

    results = attend(query, key, value, score, visible)
    sum(result.square().sum() for result in results).backward()
    return [tensor.detach().cpu() for tensor in (*results, query.grad, key.grad, value.grad, bias.grad)]


def attend_by_products(query, key, value, score, visible):
    key, value = (tensor.repeat_interleave(2, dim=1) for tensor in (key, value))
    indices = torch.meshgrid(*(torch.arange(size) for size in (1, 4, LENGTH, LENGTH)), indexing="ij")
    scores = score(query @ key.transpose(2, 3) / 4, *indices).masked_fill(~visible(*indices), -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1), scores.detach().amax(-1)


@pytest.mark.full(days=2)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("optlevel", [None, "1"])
def test_tensors_from_outside_and_statistics(optlevel):
    def attend(query, key, value, score, visible):
        mask = create_block_mask(visible, None, None, LENGTH, LENGTH, device="neuron")
        request = AuxRequest(lse=True, max_scores=True)
        result, statistics = flex_attention(query, key, value, score, mask, enable_gqa=True, return_aux=request)
        return result, statistics.lse, statistics.max_scores

    if optlevel is not None:
        attend = torch.compile(attend, backend="neuron", options={"optlevel": optlevel}, fullgraph=True)
    actual, reference = with_bias_and_statistics("neuron", attend), with_bias_and_statistics("cpu", attend_by_products)
    torch.testing.assert_close(actual, reference, atol=2e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_checkpointed():
    """torch keeps a checkpointed function as a graph inside the graph."""

    def attend(query, key, value):
        return checkpoint(flex_attention, query, key, value, tilted, None, None, True, use_reentrant=False)

    function = torch.compile(attend, backend="neuron", options={"optlevel": "1"}, fullgraph=True)
    torch.testing.assert_close(with_gradients(function, "neuron"), with_gradients(attend, "neuron"))
