"""Attention to a cache where it lies, against torch in float64, and in compiled subgraphs."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import block_attention, probe_compiler, probe_cpu
from optimum_neuron.models.common import AttentionView, Blocks, as_cached
from optimum_neuron.weights import quantize_rows
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
    assert block_attention.find_stored(call) is not None and block_attention.is_in(body, probe_cpu())
    expected = step(*(one.clone() for one in arguments))
    (function,) = compiled([body], tmp_path)
    (result,) = function(arguments)
    torch.testing.assert_close(result[1:], expected[1:], atol=2e-2, rtol=2e-2)
    assert (key[blocks, :, :, places] == 1).all(), "the cache is written first"


def narrow_inputs(name, dtype):
    """Queries, stored keys and values with their scales, a table, and a mask."""
    query, key, value, table, mask = inputs(name, torch.float32)
    pools = [key.transpose(2, 3), value]
    if dtype == torch.int8:
        stored = [quantize_rows(x, dtype) for x in pools]
        pools, scales = [numbers for numbers, _ in stored], [scale for _, scale in stored]
    else:
        pools, scales = [(x * 50).to(dtype) for x in pools], [torch.tensor([0.02]), torch.tensor([0.03])]
    return query, pools, scales, table, mask


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_8_bits_are_read_as_they_are_stored(name, dtype):
    query, (key, value), scales, table, mask = narrow_inputs(name, dtype)
    plain = [numbers.float() * scale for numbers, scale in zip((key, value), scales, strict=True)]
    keys, values = gathered(plain[0].transpose(2, 3), plain[1], table)
    expected = F.scaled_dot_product_attention(
        query.double(), keys.double(), values.double(), mask, enable_gqa=True
    ).nan_to_num(0)
    named = dict(zip(("key_scale", "value_scale"), scales, strict=True))
    result = block_attention.attend(query, key, value, mask, table, **named)
    torch.testing.assert_close(result.double(), expected, atol=4e-6, rtol=1e-5)


def test_all_numbers_of_float8_are_read():
    numbers = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)
    value = numbers.view(1, 1, 1, 256)
    key, mask = torch.zeros(1, 1, 1, 16).to(numbers.dtype), torch.ones(1, 1, 1, 1, dtype=torch.bool)
    result = block_attention.attend(torch.zeros(1, 1, 1, 16), key, value, mask)
    torch.testing.assert_close(result.flatten(), numbers.float(), rtol=0, atol=0, equal_nan=True)


def narrow_step(dtype, is_paged):
    """A step with a cache in 8 bits: its body, its arguments, and what it returns."""
    scales = [torch.tensor([0.5]), torch.tensor([0.25])] if dtype == "static" else []
    stored = getattr(torch, "float8_e4m3fn" if scales else dtype)
    query, _, _, table, mask = inputs("a step", torch.bfloat16)
    shapes = [(16, 3, 64, 32), (16, 3, 32, 64)] if is_paged else [(5, 3, 64, 96), (5, 3, 96, 64)]
    cache = [torch.zeros(shape, dtype=stored) for shape in shapes]
    if dtype == "int8":
        cache += [torch.zeros(*shapes[0][:2], 1, shapes[0][3]), torch.zeros(*shapes[1][:3], 1)]
    new = torch.randn(5, 3, 1, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    mask[:] = torch.arange(96) == 2

    places = [table[:, :1].contiguous()] if is_paged else []

    def step(new, *rest):
        own, (key, *rest) = rest[: len(scales)], rest[len(scales) :]
        blocks, (positions, value, *rest) = rest[: len(places)], rest[len(places) :]
        *stored_scales, table, query, mask = rest if is_paged else (*rest[:-2], None, *rest[-2:])
        view = AttentionView(
            positions_BT=positions,
            angles=None,
            mask=mask,
            num_slots=96,
            blocks=Blocks(table_BM=table, blocks_BT=blocks[0], places_BT=positions) if is_paged else None,
        )
        view.write([key, value, *stored_scales], new, new, own)
        keys, values = view.read([key, value, *stored_scales], new.dtype, own)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)

    # Arguments of a body are in the order of their use.
    written = [*scales, cache[0], *places, torch.full((5, 1), 2), *cache[1:]]
    arguments = [new, *written, *([table] if is_paged else []), query.bfloat16().contiguous(), mask]
    body = body_of(step, *(spec(*one.shape, dtype=str(one.dtype).partition(".")[2]) for one in arguments))
    _, expected = as_cached(stored, new, new, [scale / 2 for scale in scales])  # it sees one token
    return body, arguments, expected


@pytest.mark.full(days=4)
def test_steps_of_compiled_subgraphs_read_8_bits(tmp_path):
    kinds = [(dtype, is_paged) for dtype in ("int8", "float8_e4m3fn", "static") for is_paged in (True, False)]
    bodies, arguments, expected = zip(*(narrow_step(*kind) for kind in kinds), strict=True)
    for body in bodies:
        call = next(node for node in body.graph.nodes if "dot_product" in str(node.target))
        found = block_attention.find_stored(call)
        assert found is not None and found.key.meta["val"].dtype.itemsize == 1
    for function, own, value in zip(compiled(bodies, tmp_path), arguments, expected, strict=True):
        (result,) = function(own)
        torch.testing.assert_close(result.float(), value.float().repeat_interleave(3, 1), atol=1e-2, rtol=1e-2)
