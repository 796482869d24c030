"""Prefill and decode of a decoder under tensor parallelism, counted from its sizes.

Layers are split as Megatron-LM does (Shoeybi et al. 2019): by columns into heads and the wide part of the MLP, by rows
back, with one all-reduce after each; the head is split by tokens of the vocabulary. Heads are padded up to a multiple
of the cores. The work of all cores is the largest share of one of them.

    work = decode_work(sizes, layout, slots=4096)
"""

from __future__ import annotations

import dataclasses
import math

from ...compiler import contiguous_bytes, product_cycles
from .layer_sizes import LayerSizes, Projection
from .record import GraphWork, Step, Work
from .sizes import DecoderSizes, local_heads

ACTIVATION_BYTES = 2
"""Bytes of one value between layers, and of one that is reduced: 16-bit types."""
NORM_PASSES = 8
"""Passes over the residual stream of a layer: two norms of three passes, two additions."""
DENSE_PASSES = 2.0
"""Passes over the results of each expert where all of them see each token: its share of the token, the sum."""
SCAN_PASSES = 4
"""Passes over a recurrent state for each token: decay, product with the key, update, product with the query. Published
stacks scan a prompt token by token."""
STATE_BYTES = 4
"""Of an element of a recurrent state."""
PASSES = {"attention_in": 2.0, "up": 1.5, "expert_up": 1.5}
"""Passes over matmul results: queries, keys, and values leave PSUM and are rotated, both results of an MLP leave PSUM
and are multiplied. Reduced results leave PSUM with the all-reduce."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a decoder is placed on cores."""

    num_cores: int
    """Cores that share one replica: the tensor-parallel degree."""
    weight_bytes: float
    cache_bytes: int
    """Bytes of one element of keys and values."""
    replicate_kv_heads: bool
    """Each core keeps one key-value head where there are more cores than heads; see `sizes.local_heads`."""
    dense_experts: bool = False
    """A prompt sends each token through all experts, else through its own."""

    @property
    def head_bytes(self) -> int:
        """Bytes of a weight of embedding, norms and head, stored in at least 16 bits."""
        return max(ACTIVATION_BYTES, int(self.weight_bytes))


def decode_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> GraphWork:
    """One token for each of `batch_size` rows, which attend to `slots` cache slots, on one core."""
    queries, keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    cycles = 2 * product_cycles(1, sizes.head_dim, slots)
    attention = _attention(batch_size * queries, sizes.head_dim, 1, slots, cycles) + Work(
        state_bytes=2 * batch_size * slots * keys * sizes.head_dim * layout.cache_bytes,
        attention_reads=batch_size * queries,
        num_attentions=1,
    )
    steps = _stack(sizes, layout, attention, tokens=batch_size, decoding=True)
    return GraphWork(name=f"decode_{slots}", steps=(*steps, *_ends(sizes, layout, batch_size, batch_size)))


def prefill_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, tokens: int) -> GraphWork:
    """`batch_size` prompts of `tokens` tokens, padding included, in one run, on one core."""
    queries, _ = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    cycles = product_cycles(tokens, sizes.head_dim, tokens) + product_cycles(tokens, tokens, sizes.head_dim)
    attention = _attention(batch_size * queries, sizes.head_dim, tokens, tokens, cycles)
    steps = _stack(sizes, layout, attention, tokens=batch_size * tokens, decoding=False)
    return GraphWork(name=f"prefill_{tokens}", steps=(*steps, *_ends(sizes, layout, batch_size * tokens, batch_size)))


def _attention(num_heads: int, size: int, tokens: int, slots: int, cycles: int) -> Work:
    """Attention of `tokens` queries to `slots` keys, in so many heads of all rows; a head takes `cycles`."""
    flops = 4 * num_heads * size * tokens * slots
    return Work(
        flops=flops,
        product_flops=flops,
        attention_cycles=num_heads * cycles,
        softmax_elements=num_heads * tokens * slots,
    )


def parameter_bytes(sizes: DecoderSizes, layout: Layout) -> int:
    """Bytes of weights that one core keeps: its share of the layers, of the embedding and of the head."""
    layers = 0
    for layer in sizes.layers:
        for projection in layer.projections:
            inner, columns = _local(projection, sizes, layout)
            each = layer.num_experts if projection.role.startswith("expert") else 1
            layers += layer.count * each * int(inner * columns * layout.weight_bytes)
        layers += layer.count * layer.other_elements * layout.head_bytes
    head = sizes.hidden * math.ceil(sizes.vocab / layout.num_cores) * layout.head_bytes
    return layers + 2 * head


def cache_bytes(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> int:
    """Bytes of keys and values that one core keeps."""
    _, keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    states = sum(layer.count * _local_state(layer, layout) for layer in sizes.layers)
    per_slot = 2 * keys * sizes.head_dim * layout.cache_bytes * _num_attending(sizes)
    return batch_size * (slots * per_slot + states * STATE_BYTES)


def _local_state(layer: LayerSizes, layout: Layout) -> int:
    """Elements of the recurrent state of one row that one core keeps."""
    return math.ceil(layer.state_heads / layout.num_cores) * layer.state_elements


def _num_attending(sizes: DecoderSizes) -> int:
    return sum(layer.count for layer in sizes.layers if layer.has_attention)


def _local(projection: Projection, sizes: DecoderSizes, layout: Layout) -> tuple[int, int]:
    """Inner size and columns of one core's share."""
    cores = layout.num_cores
    queries, keys = local_heads(sizes, cores, replicate=layout.replicate_kv_heads)
    whole = (sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    if projection.role == "attention_in" and projection.columns >= whole:
        rest = math.ceil((projection.columns - whole) / cores)
        return projection.inner, (queries + 2 * keys) * sizes.head_dim + rest
    if projection.role == "attention_out" and projection.inner == sizes.num_heads * sizes.head_dim:
        return queries * sizes.head_dim, projection.columns
    if projection.role in ("attention_out", "down", "expert_down"):
        return math.ceil(projection.inner / cores), projection.columns
    each = math.ceil(projection.columns / projection.num_matrices / cores)
    return projection.inner, each * projection.num_matrices


def _stack(sizes: DecoderSizes, layout: Layout, attention: Work, *, tokens: int, decoding: bool) -> list[Step]:
    steps = []
    for layer in sizes.layers:
        for projection in layer.projections:
            work = _projection(projection, layer, sizes, layout, tokens, decoding=decoding)
            steps.append(Step(name=projection.role, work=work, count=layer.count, module_path="layers"))
        rest = Work(
            vector_elements=tokens * sizes.hidden * NORM_PASSES,
            weight_bytes=layer.other_elements * layout.head_bytes,
            weight_rows=1,
            num_collectives=2 if layout.num_cores > 1 else 0,
            collective_bytes=2 * tokens * sizes.hidden * ACTIVATION_BYTES if layout.num_cores > 1 else 0,
        )
        steps.append(Step(name="norms_and_all_reduce", work=rest, count=layer.count, module_path="layers"))
        if layer.state_heads:
            scan = _scan(layer, layout, tokens, decoding=decoding)
            steps.append(Step(name="scan", work=scan, count=layer.count, module_path="layers"))
    return [*steps, Step(name="attention", work=attention, count=_num_attending(sizes), module_path="layers")]


def _scan(layer: LayerSizes, layout: Layout, tokens: int, *, decoding: bool) -> Work:
    """A recurrent state that each token changes, in order; a step reads the state of each row."""
    elements = tokens * _local_state(layer, layout)
    return Work(
        flops=2 * SCAN_PASSES * elements,
        vector_elements=SCAN_PASSES * elements,
        state_bytes=elements * STATE_BYTES if decoding else 0,
    )


def _projection(
    projection: Projection, layer: LayerSizes, sizes: DecoderSizes, layout: Layout, tokens: int, *, decoding: bool
) -> Work:
    inner, columns = _local(projection, sizes, layout)
    times, rows, read = 1, tokens, 1
    if projection.role.startswith("expert"):
        # A step loads the experts of each token one by one; a prompt sends all of its tokens through each expert.
        times = tokens * sizes.experts_per_token if decoding else layer.num_experts
        routed = tokens if layout.dense_experts else math.ceil(tokens * sizes.experts_per_token / layer.num_experts)
        rows = 1 if decoding else routed
        read = times
    passes = PASSES.get(projection.role, 0.0)
    if projection.role == "expert_down" and layout.dense_experts and not decoding:
        passes = DENSE_PASSES
    size_bytes = int(inner * columns * layout.weight_bytes)
    width = columns if projection.role == "attention_in" else columns // projection.num_matrices
    chunk = contiguous_bytes(inner, width, layout.weight_bytes)
    return Work(
        flops=2 * times * rows * inner * columns,
        product_flops=2 * times * rows * inner * columns,
        tensor_cycles=times * product_cycles(rows, inner, columns),
        vector_elements=times * rows * columns * passes,
        weight_bytes=read * size_bytes,
        weight_rows=read * size_bytes / chunk,
    )


def _ends(sizes: DecoderSizes, layout: Layout, tokens: int, rows: int) -> tuple[Step, ...]:
    """Embedding and head: the head makes logits of the last token of each row only."""
    columns = math.ceil(sizes.vocab / layout.num_cores)
    element = layout.head_bytes
    weight = sizes.hidden * columns * element
    head = Work(
        flops=2 * rows * sizes.hidden * columns,
        product_flops=2 * rows * sizes.hidden * columns,
        tensor_cycles=product_cycles(rows, sizes.hidden, columns),
        vector_elements=rows * columns,
        weight_bytes=weight,
        weight_rows=weight / contiguous_bytes(sizes.hidden, columns, element),
    )
    embedding = Work(weight_bytes=tokens * sizes.hidden * element, weight_rows=tokens)
    host = Work(host_bytes=tokens * 8 + rows * 8)
    return (
        Step(name="embedding", work=embedding, module_path="embed_tokens"),
        Step(name="head", work=head, module_path="lm_head"),
        Step(name="host", work=host),
    )
