"""Prefill and decode of a decoder under tensor parallelism, counted from its sizes.

Layers are split as Megatron-LM does (Shoeybi et al. 2019): by columns into heads and the wide part of the MLP, by rows
back, with one all-reduce after each; the head is split by tokens of the vocabulary. Heads are padded up to a multiple
of the cores. The work of all cores is the largest share of one of them.

    work = decode_work(sizes, layout, slots=4096)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

from ...compiler import contiguous_bytes, product_cycles
from .layer_sizes import LayerSizes, Norm, Projection, Role
from .mixers import STATE_BYTES, scan
from .record import Attention, GraphWork, Step, Work
from .sizes import DecoderSizes, local_heads

ACTIVATION_BYTES = 2
"""Bytes of one value between layers, and of one that is reduced: 16-bit types."""
SUM_BYTES = 4
"""Bytes of a logit, and of the sum of squares of a norm over all cores."""
NORM_PASSES = 3
"""Passes over what a norm normalizes: its mean, its spread, the result."""
NUM_ADDITIONS = 2
"""Additions to the residual stream of a layer, one pass each."""
DENSE_PASSES = 2.0
"""Passes over the results of each expert where all of them see each token: its share of the token, the sum."""
ATTENTION_IN_PASSES = 2.0
"""Passes over queries, keys, and values: they leave PSUM, and are rotated, scaled, or written to the cache. Results
that are summed over the cores, or added to the residual stream, leave PSUM with that."""
JOINED_ROLES: tuple[Role, ...] = ("attention_in", "latent_in", "state_in")
"""Matrices of one input that are one for DMA, and whose results take `ATTENTION_IN_PASSES`. Those of a state leave
PSUM, and are convolved or made gates."""
FLOAT32_BYTES = 4


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
    """Each token goes through all experts where tokens choose as many as there are; fewer are loaded one by one
    (`ExpertMLPsV2.forward` of NxD, which calls it selective loading). Else a step loads those of each token, and a
    prompt sends each token through its own."""

    @property
    def head_bytes(self) -> int:
        """Bytes of a weight of embedding, norms and head, stored in at least 16 bits."""
        return max(ACTIVATION_BYTES, int(self.weight_bytes))


def decode_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> GraphWork:
    """One token for each of `batch_size` rows, which attend to `slots` cache slots, on one core."""
    queries, keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)

    def attend(layer: LayerSizes) -> Work:
        seen = min(slots, layer.window or slots)
        one = Attention(num_rows=batch_size, num_heads=queries, queries=1, keys=seen)
        if sizes.latent is not None:
            return sizes.latent.attention(one, cache_bytes=layout.cache_bytes)
        return _attention(sizes, one) + Work(
            state_bytes=2 * batch_size * seen * keys * sizes.head_dim * layout.cache_bytes,
            attention_reads=batch_size * queries,
            num_attentions=1,
        )

    steps = _stack(sizes, layout, attend, tokens=batch_size, decoding=True)
    return GraphWork(name=f"decode_{slots}", steps=(*steps, *_ends(sizes, layout, batch_size, batch_size)))


def prefill_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, tokens: int) -> GraphWork:
    """`batch_size` prompts of `tokens` tokens, padding included, in one run, on one core."""
    queries, _ = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    all_tokens = Attention(num_rows=batch_size, num_heads=queries, queries=tokens, keys=tokens)
    latent = sizes.latent
    attention = latent.attention(all_tokens, cache_bytes=0) if latent else _attention(sizes, all_tokens)
    steps = _stack(sizes, layout, lambda layer: attention, tokens=batch_size * tokens, decoding=False)
    return GraphWork(name=f"prefill_{tokens}", steps=(*steps, *_ends(sizes, layout, batch_size * tokens, batch_size)))


def _attention(sizes: DecoderSizes, one: Attention) -> Work:
    """Attention of queries to keys in the heads of one core."""
    scores, size = one.num_rows * one.num_heads * one.queries * one.keys, sizes.head_dim
    cycles = product_cycles(one.queries, size, one.keys) + product_cycles(one.queries, one.keys, size)
    if one.is_cross:
        cycles = 2 * product_cycles(one.queries, size, one.keys)
    return Work(
        flops=4 * scores * size,
        product_flops=4 * scores * size,
        attention_cycles=one.num_rows * one.num_heads * cycles,
        softmax_elements=scores,
    )


def parameter_bytes(sizes: DecoderSizes, layout: Layout) -> int:
    """Bytes of weights that one core keeps: its share of the layers, of the embedding and of the head."""
    total = 0
    for layer in sizes.layers:
        for projection in layer.projections:
            inner, columns = _local(projection, sizes, layout)
            each = layer.num_experts if projection.role.startswith("expert") else 1
            total += layer.count * each * int(inner * columns * _weight_bytes(projection, layout))
            total += layer.count * _local_biases(projection, sizes, layout) * layout.head_bytes
        norms = sum(_norm_elements(norm, sizes, layout) for norm in layer.norms)
        of_state = math.ceil(layer.state_parameters / layout.num_cores)
        total += layer.count * (norms + layer.other_elements + of_state) * layout.head_bytes
        total += layer.count * layer.float32_elements * FLOAT32_BYTES
    columns = math.ceil(sizes.vocab / layout.num_cores)
    tables = sizes.hidden * columns * (1 if sizes.tied else 2) + columns * sizes.has_head_bias
    return total + (tables + sizes.position_elements + sizes.num_end_vectors * sizes.hidden) * layout.head_bytes


def cache_bytes(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> int:
    """Bytes of keys and values that one core keeps."""
    _, keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    num_slots = sum(layer.count * min(slots, layer.window or slots) for layer in sizes.layers if layer.has_attention)
    per_slot = (sizes.latent.kept if sizes.latent else 2 * keys * sizes.head_dim) * layout.cache_bytes
    states = sum(layer.count * _state_bytes(layer, layout) for layer in sizes.layers)
    return batch_size * (num_slots * per_slot + states)


def _state_bytes(layer: LayerSizes, layout: Layout) -> int:
    """Bytes that one core keeps of a sequence between its tokens, beside keys and values."""
    if layer.state is None:
        return 0
    window = math.ceil(layer.state.window / layout.num_cores)
    return layer.state.local_elements(layout.num_cores) * STATE_BYTES + window * layout.head_bytes


def _norm_elements(norm: Norm, sizes: DecoderSizes, layout: Layout) -> int:
    """Parameters of a norm that one core keeps: those of its heads, where each head has its own."""
    if norm.of in ("stream", "state") or norm.width == sizes.head_dim:
        return norm.num_vectors * norm.width
    return norm.num_vectors * _heads_width(norm, sizes, layout)


def _normalized_width(norm: Norm, layer: LayerSizes, sizes: DecoderSizes, layout: Layout) -> int:
    """Elements of one token that a norm passes on one core."""
    if norm.of == "stream":
        return norm.width
    if norm.of == "state":
        assert layer.state is not None, "only a state has such a norm"
        return math.ceil(layer.state.num_heads / layout.num_cores) * norm.width
    return _heads_width(norm, sizes, layout)


def _heads_width(norm: Norm, sizes: DecoderSizes, layout: Layout) -> int:
    queries, keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
    return (queries if norm.of == "queries" else keys) * sizes.head_dim


def _weight_bytes(projection: Projection, layout: Layout) -> float:
    """Bytes of one weight: routers are kept in at least 16 bits."""
    return layout.head_bytes if projection.role == "router" else layout.weight_bytes


def _local_biases(projection: Projection, sizes: DecoderSizes, layout: Layout) -> int:
    """Elements of the biases of one core's share; those of sums are added once, and kept whole."""
    if not projection.num_biases or projection.role in ("attention_out", "down", "router"):
        return projection.num_biases
    return _local(projection, sizes, layout)[1] * projection.num_biases // projection.columns


def _local(projection: Projection, sizes: DecoderSizes, layout: Layout) -> tuple[int, int]:
    """Inner size and columns of one core's share."""
    cores = layout.num_cores
    queries, keys = local_heads(sizes, cores, replicate=layout.replicate_kv_heads)
    if projection.role in ("router", "latent_in"):
        return projection.inner, projection.columns
    if sizes.latent is not None and projection.role in ("attention_in", "absorbed"):
        return projection.inner, queries * projection.columns // sizes.num_heads
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


def _stack(
    sizes: DecoderSizes, layout: Layout, attend: Callable[[LayerSizes], Work], *, tokens: int, decoding: bool
) -> list[Step]:
    steps = []
    for layer in sizes.layers:
        counted = functools.partial(Step, count=layer.count, module_path="layers")
        for projection in layer.projections:
            work = _projection(projection, layer, sizes, layout, tokens, decoding=decoding)
            steps.append(counted(name=projection.role, work=work))
        steps.append(counted(name="norms_and_all_reduce", work=_between(layer, sizes, layout, tokens)))
        if layer.state is not None:
            elements = layer.state.local_elements(layout.num_cores)
            steps.append(counted(name="scan", work=scan(tokens, elements, is_step=decoding)))
        if layer.has_attention:
            steps.append(counted(name="attention", work=attend(layer)))
    return steps


def _between(layer: LayerSizes, sizes: DecoderSizes, layout: Layout, tokens: int) -> Work:
    """Work of a layer between its matrices: norms, additions, sums over the cores."""
    of_state = math.ceil(layer.state_parameters / layout.num_cores)
    work = Work(
        vector_elements=tokens * sizes.hidden * NUM_ADDITIONS,
        weight_bytes=(layer.other_elements + of_state) * layout.head_bytes + layer.float32_elements * FLOAT32_BYTES,
        weight_rows=sum(n > 0 for n in (layer.other_elements, of_state, layer.float32_elements)),
    )
    if layout.num_cores > 1:
        work += Work(num_collectives=2, collective_bytes=2 * tokens * sizes.hidden * ACTIVATION_BYTES)
    for norm in layer.norms:
        work += Work(
            vector_elements=tokens * NORM_PASSES * _normalized_width(norm, layer, sizes, layout),
            weight_bytes=_norm_elements(norm, sizes, layout) * layout.head_bytes,
            weight_rows=norm.num_vectors,
        )
        if layout.num_cores > 1 and norm.of in ("queries", "keys") and norm.width != sizes.head_dim:
            # Its mean is over the heads of all cores.
            work += Work(num_collectives=1, collective_bytes=tokens * SUM_BYTES)
    return work


def _projection(
    projection: Projection, layer: LayerSizes, sizes: DecoderSizes, layout: Layout, tokens: int, *, decoding: bool
) -> Work:
    inner, columns = _local(projection, sizes, layout)
    times, rows, read = 1, tokens, 1
    is_dense = False
    if projection.role.startswith("expert"):
        chosen = tokens * sizes.experts_per_token
        is_dense = layout.dense_experts and chosen >= layer.num_experts
        if is_dense:
            times = layer.num_experts
        elif decoding or layout.dense_experts:
            times, rows = chosen, 1
        else:
            times, rows = layer.num_experts, math.ceil(chosen / layer.num_experts)
        read = times
    size_bytes = int(inner * columns * _weight_bytes(projection, layout))
    width = columns if projection.role in JOINED_ROLES else columns // projection.num_matrices
    chunk = contiguous_bytes(inner, width, _weight_bytes(projection, layout))
    num_biases = _local_biases(projection, sizes, layout)
    weights = Work(
        weight_bytes=read * (size_bytes + num_biases * layout.head_bytes),
        weight_rows=read * (size_bytes / chunk + int(num_biases > 0)),
    )
    if projection.role == "absorbed" and sizes.latent is not None:
        queries, _ = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
        return weights + sizes.latent.absorbed(num_heads=queries, tokens=tokens)
    return weights + Work(
        flops=2 * times * rows * inner * columns,
        product_flops=2 * times * rows * inner * columns,
        tensor_cycles=times * product_cycles(rows, inner, columns),
        vector_elements=times * rows * columns * _passes(projection, is_dense=is_dense),
    )


def _passes(projection: Projection, *, is_dense: bool) -> float:
    """Passes over the results of a matmul.

    An activation is computed as they leave PSUM; half of two joined matrices is the product of both.
    """
    if projection.role in JOINED_ROLES:
        return ATTENTION_IN_PASSES
    if projection.role in ("up", "expert_up"):
        return gated_passes(projection.num_matrices)
    if projection.role == "expert_down" and is_dense:
        return DENSE_PASSES
    return 1.0 if projection.role == "router" else 0.0


def gated_passes(num_matrices: int) -> float:
    """Passes over the results of the first matrices of a feed-forward: of one, or of gate and up."""
    return 1.5 if num_matrices > 1 else 1.0


def _ends(sizes: DecoderSizes, layout: Layout, tokens: int, rows: int) -> tuple[Step, ...]:
    """Embedding and head: the head makes logits of the last token of each row only."""
    columns = math.ceil(sizes.vocab / layout.num_cores)
    element = layout.head_bytes
    weight = sizes.hidden * columns * element
    embedding = Work(
        weight_bytes=tokens * (sizes.hidden + sizes.position_width) * element,
        weight_rows=tokens * (2 if sizes.position_width else 1),
    )
    norm = Work(
        vector_elements=NORM_PASSES * rows * sizes.hidden * (sizes.num_end_vectors > 0),
        weight_bytes=sizes.num_end_vectors * sizes.hidden * element,
        weight_rows=sizes.num_end_vectors,
    )
    head = Work(
        flops=2 * rows * sizes.hidden * columns,
        product_flops=2 * rows * sizes.hidden * columns,
        tensor_cycles=product_cycles(rows, sizes.hidden, columns),
        vector_elements=rows * columns,
        weight_bytes=weight + columns * element * sizes.has_head_bias,
        weight_rows=weight / contiguous_bytes(sizes.hidden, columns, element) + sizes.has_head_bias,
    )
    if layout.num_cores > 1:
        embedding += Work(num_collectives=1, collective_bytes=tokens * sizes.hidden * ACTIVATION_BYTES)
        # A gather moves its bytes once, a sum twice.
        head += Work(num_collectives=1, collective_bytes=rows * columns * layout.num_cores * SUM_BYTES // 2)
    host = Work(host_bytes=tokens * 8 + rows * 8)
    return (
        Step(name="embedding", work=embedding, module_path="embed_tokens"),
        Step(name="norm", work=norm, module_path="norm"),
        Step(name="head", work=head, module_path="lm_head"),
        Step(name="host", work=host),
    )
