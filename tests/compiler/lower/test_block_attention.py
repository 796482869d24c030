"""Attention to a cache where it lies, against torch in float64, and in compiled subgraphs."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import block_attention, probe_compiler, probe_cpu
from optimum_neuron.models.common import Blocks
from tests.compiler.lower.conftest import compiled
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")

SIZES = {
    "a step": (5, 9, 3, 1, 64, 64, 32, 3),
    "wide heads": (2, 4, 1, 1, 256, 256, 16, 2),
    "odd sizes, several queries": (3, 4, 4, 3, 20, 12, 5, 4),
    "large blocks": (2, 8, 2, 8, 40, 70, 48, 2),
}
"""B rows, N query heads, K key heads, T queries, H width, V width, P slots of a block, M blocks."""


def inputs(name, dtype):
    """Queries, pools of blocks, a table, and a mask in which one query sees nothing."""
    rows, num_heads, num_key_heads, num_queries, width, value_width, block_size, num_blocks = SIZES[name]
    generator = torch.Generator().manual_seed(0)
    pools = (rows * num_blocks + 1, num_key_heads)
    key = torch.randn(*pools, width, block_size, generator=generator).to(dtype)
    value = torch.randn(*pools, block_size, value_width, generator=generator).to(dtype)
    query = torch.randn(rows, num_queries, num_heads, width, generator=generator).transpose(1, 2)
    table = torch.randperm(rows * num_blocks, generator=generator).view(rows, num_blocks) + 1
    last = torch.randint(0, num_blocks * block_size, (rows, 1, num_queries, 1), generator=generator)
    mask = torch.arange(num_blocks * block_size) <= last
    mask[0, 0, 0] = False
    return query, key, value, table, mask


def gathered(key, value, table):
    view = Blocks(table_BM=table, blocks_BT=table, places_BT=table)
    return view.read(key, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SIZES)
def test_results_are_those_of_float64(name, dtype):
    query, key, value, table, mask = inputs(name, dtype)
    keys, values = gathered(key, value, table)
    expected = F.scaled_dot_product_attention(
        query.double(), keys.double(), values.double(), mask, enable_gqa=True
    ).nan_to_num(0)
    in_blocks = block_attention.attend(query, key.transpose(2, 3), value, mask, table)
    torch.testing.assert_close(in_blocks.double(), expected, atol=2e-6, rtol=1e-5)
    whole = block_attention.attend(query, keys, values, mask)
    torch.testing.assert_close(whole.double(), expected, atol=2e-6, rtol=1e-5)


def test_row_depends_on_its_own_tokens_only():
    query, key, value, table, mask = inputs("a step", torch.bfloat16)
    key = key.transpose(2, 3)
    result = block_attention.attend(query, key, value, mask, table)
    for row in range(len(query)):
        own = slice(row, row + 1)
        assert (block_attention.attend(query[own], key, value, mask[own], table[own]) == result[own]).all()
    longer = F.pad(table, (0, 2)), F.pad(mask, (0, 64))
    assert (block_attention.attend(query, key, value, longer[1], longer[0]) == result).all(), "slots that nothing sees"


def test_step_of_compiled_subgraph_reads_blocks(tmp_path):
    query, key, value, table, mask = inputs("a step", torch.bfloat16)
    blocks, places = table[:, :1].contiguous(), torch.full((5, 1), 2)
    new = torch.ones(5, 3, 1, 64).bfloat16()

    def step(new, key, blocks, places, value, table, query, mask):
        view = Blocks(table_BM=table, blocks_BT=blocks, places_BT=places)
        view.write(key, value, new, new)
        return F.scaled_dot_product_attention(query, *view.read(key, value), attn_mask=mask, enable_gqa=True)

    arguments = [new, key, blocks, places, value, table, query.bfloat16().contiguous(), mask]
    body = body_of(step, *(spec(*one.shape, dtype=str(one.dtype).partition(".")[2]) for one in arguments))
    call = next(node for node in body.graph.nodes if "dot_product" in str(node.target))
    assert block_attention.find_blocks(call) is not None and block_attention.is_in(body, probe_cpu())
    expected = step(*(one.clone() for one in arguments))
    (function,) = compiled([body], tmp_path)
    (result,) = function(arguments)
    torch.testing.assert_close(result[1:], expected[1:], atol=2e-2, rtol=2e-2)
    assert (key[blocks, :, :, places] == 1).all(), "the cache is written first"
