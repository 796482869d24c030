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
from .record import Attention, GraphWork, Step, Work
from .roles import JOINED_ROLES, Role
from .sizes import STATE_BYTES, DecoderSizes, LayerSizes, Norm, Projection, scan

ACTIVATION_BYTES = 2
"""Bytes of one value between layers, and of one that is reduced: 16-bit types."""
SUM_BYTES = 4
"""Bytes of a logit, and of the sum of squares of a norm over all cores."""
NORM_PASSES = 3
"""Passes over what a norm normalizes: its mean, its spread, the result."""
NUM_ADDITIONS = 2
"""Additions to the residual stream of a layer, one pass each."""
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
    """Each core keeps one key-value head where there are more cores than heads; see `local_heads`."""
    dense_experts: bool = False
    """Each token goes through all experts where tokens choose as many as there are; fewer are loaded one by one
    (`ExpertMLPsV2.forward` of NxD, which calls it selective loading). Else a step loads those of each token, and a
    prompt sends each token through its own."""
    sequence_parallel: bool = False
    """Between the matrices of a prompt each core has its part of the tokens: a sum over the cores is then a scatter and
    a gather of the same bytes (Korthikanti et al. 2022)."""

    @property
    def head_bytes(self) -> int:
        """Bytes of a weight of embedding, norms and head, stored in at least 16 bits."""
        return max(ACTIVATION_BYTES, int(self.weight_bytes))


def decode_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> GraphWork:
    """One token for each of `batch_size` rows, which attend to `slots` cache slots, on one core."""
    share = _Share(sizes, layout)

    def attend(layer: LayerSizes) -> Work:
        seen = min(slots, layer.window or slots)
        one = Attention(num_rows=batch_size, num_heads=share.queries, queries=1, keys=seen)
        if sizes.latent is not None:
            return sizes.latent.attention(one, cache_bytes=layout.cache_bytes)
        return share.attention(one) + Work(
            state_bytes=2 * batch_size * seen * share.keys * sizes.head_dim * layout.cache_bytes,
            attention_reads=batch_size * share.queries,
            num_attentions=1,
        )

    steps = share.steps(attend, tokens=batch_size, rows=batch_size, decoding=True)
    return GraphWork(name=f"decode_{slots}", steps=steps)


def prefill_work(sizes: DecoderSizes, layout: Layout, *, batch_size: int, tokens: int) -> GraphWork:
    """`batch_size` prompts of `tokens` tokens, padding included, in one run, on one core."""
    share, latent = _Share(sizes, layout), sizes.latent
    all_tokens = Attention(num_rows=batch_size, num_heads=share.queries, queries=tokens, keys=tokens)
    attention = latent.attention(all_tokens, cache_bytes=0) if latent else share.attention(all_tokens)
    steps = share.steps(lambda layer: attention, tokens=batch_size * tokens, rows=batch_size, decoding=False)
    return GraphWork(name=f"prefill_{tokens}", steps=steps)


def parameter_bytes(sizes: DecoderSizes, layout: Layout) -> int:
    """Bytes of weights that one core keeps: its share of the layers, of the embedding and of the head."""
    share, head_bytes, total = _Share(sizes, layout), layout.head_bytes, 0
    for layer in sizes.layers:
        for projection in layer.projections:
            inner, columns = share.of(projection)
            each = layer.num_experts if projection.role.startswith("expert") else 1
            total += layer.count * each * int(inner * columns * share.weight_bytes(projection))
            total += layer.count * share.num_biases(projection) * head_bytes
        vectors = sum(share.kept(norm) for norm in layer.norms) + layer.other_elements + share.state_parameters(layer)
        total += layer.count * (vectors * head_bytes + layer.float32_elements * FLOAT32_BYTES)
    tables = sizes.hidden * share.vocab * (1 if sizes.tied else 2) + share.vocab * sizes.has_head_bias
    return total + (tables + sizes.position_elements + sizes.num_end_vectors * sizes.hidden) * head_bytes


def cache_bytes(sizes: DecoderSizes, layout: Layout, *, batch_size: int, slots: int) -> int:
    """Bytes of keys and values, and of recurrent states, that one core keeps."""
    num_slots = sum(layer.count * min(slots, layer.window or slots) for layer in sizes.layers if layer.has_attention)
    each = sizes.latent.kept if sizes.latent else 2 * _Share(sizes, layout).keys * sizes.head_dim
    states, cores = 0, layout.num_cores
    for layer in sizes.layers:
        if layer.state is not None:
            window = math.ceil(layer.state.window / cores) * layout.head_bytes
            states += layer.count * (layer.state.local_elements(cores) * STATE_BYTES + window)
    return batch_size * (num_slots * each * layout.cache_bytes + states)


def passes_of(role: Role | None, *, num_matrices: int = 1, dense: bool = False) -> float:
    """Passes over the results of matrices of a role, of which `num_matrices` are joined.

    An activation is computed as results leave PSUM, and half of two joined matrices is the product of both. Results
    that are summed over the cores, or added to the residual stream, leave PSUM with that. `dense` experts see every
    token: its share of the token is one pass, the sum another.
    """
    if role in JOINED_ROLES:
        return 2.0
    if role in ("up", "expert_up"):
        return 1.5 if num_matrices > 1 else 1.0
    if role == "expert_down":
        return 2.0 if dense else 0.0
    return 0.0 if role in ("attention_out", "down") else 1.0


def local_heads(sizes: DecoderSizes, num_cores: int, *, replicate: bool) -> tuple[int, int]:
    """Query heads and key-value heads of one core; heads are padded up to a multiple of the cores.

    Key-value heads are split where their number allows. If the number of cores is a multiple of them, each core keeps
    one (`replicate`), or one for each of its query heads as the older library does; else each query head has its own.
    """
    queries = math.ceil(sizes.num_heads / num_cores)
    if sizes.num_kv_heads % num_cores == 0:
        return queries, sizes.num_kv_heads // num_cores
    if replicate and num_cores % sizes.num_kv_heads == 0:
        return queries, 1
    return queries, queries


class _Share:
    """What one core keeps and does of a decoder."""

    def __init__(self, sizes: DecoderSizes, layout: Layout) -> None:
        self.sizes, self.layout, self.cores = sizes, layout, layout.num_cores
        self.queries, self.keys = local_heads(sizes, layout.num_cores, replicate=layout.replicate_kv_heads)
        self.vocab = math.ceil(sizes.vocab / layout.num_cores)

    def of(self, projection: Projection) -> tuple[int, int]:
        """Inner size and columns of a matrix."""
        sizes, cores, role = self.sizes, self.cores, projection.role
        if role in ("router", "latent_in"):
            return projection.inner, projection.columns
        if sizes.latent is not None and role in ("attention_in", "absorbed"):
            return projection.inner, self.queries * projection.columns // sizes.num_heads
        whole = (sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
        if role == "attention_in" and projection.columns >= whole:
            rest = math.ceil((projection.columns - whole) / cores)
            return projection.inner, (self.queries + 2 * self.keys) * sizes.head_dim + rest
        if role == "attention_out" and projection.inner == sizes.num_heads * sizes.head_dim:
            return self.queries * sizes.head_dim, projection.columns
        if role in ("attention_out", "down", "expert_down"):
            return math.ceil(projection.inner / cores), projection.columns
        each = math.ceil(projection.columns / projection.num_matrices / cores)
        return projection.inner, each * projection.num_matrices

    def weight_bytes(self, projection: Projection) -> float:
        """Bytes of one weight: routers are kept in at least 16 bits."""
        return self.layout.head_bytes if projection.role == "router" else self.layout.weight_bytes

    def num_biases(self, projection: Projection) -> int:
        """Elements of the biases; those of sums are added once, and kept whole."""
        if not projection.num_biases or projection.role in ("attention_out", "down", "router"):
            return projection.num_biases
        return self.of(projection)[1] * projection.num_biases // projection.columns

    def kept(self, norm: Norm) -> int:
        """Parameters of a norm: those of its heads, where each head has its own."""
        is_shared = norm.of in ("stream", "state") or norm.width == self.sizes.head_dim
        return norm.num_vectors * (norm.width if is_shared else self._heads_width(norm))

    def _heads_width(self, norm: Norm) -> int:
        return (self.queries if norm.of == "queries" else self.keys) * self.sizes.head_dim

    def state_parameters(self, layer: LayerSizes) -> int:
        """Parameters of the heads of a recurrent state."""
        return math.ceil(layer.state_parameters / self.cores)

    def attention(self, one: Attention) -> Work:
        """Attention of queries to keys."""
        scores, size = one.num_rows * one.num_heads * one.queries * one.keys, self.sizes.head_dim
        cycles = product_cycles(one.queries, size, one.keys) + product_cycles(one.queries, one.keys, size)
        if one.is_cross:
            cycles = 2 * product_cycles(one.queries, size, one.keys)
        return Work(
            flops=4 * scores * size,
            product_flops=4 * scores * size,
            attention_cycles=one.num_rows * one.num_heads * cycles,
            softmax_elements=scores,
        )

    def steps(
        self, attend: Callable[[LayerSizes], Work], *, tokens: int, rows: int, decoding: bool
    ) -> tuple[Step, ...]:
        """All steps of a run with so many tokens in so many sequences."""
        steps = []
        for layer in self.sizes.layers:
            counted = functools.partial(Step, count=layer.count, module_path="layers")
            for projection in layer.projections:
                work = self._multiplied(projection, layer, tokens, decoding=decoding)
                steps.append(counted(name=projection.role, work=work))
            steps.append(counted(name="norms_and_all_reduce", work=self._between(layer, tokens, decoding=decoding)))
            if layer.state is not None:
                elements = layer.state.local_elements(self.cores)
                steps.append(counted(name="scan", work=scan(tokens, elements, is_step=decoding)))
            if layer.has_attention:
                steps.append(counted(name="attention", work=attend(layer)))
        return (*steps, *self._ends(tokens, rows))

    def _between(self, layer: LayerSizes, tokens: int, *, decoding: bool) -> Work:
        """Work of a layer between its matrices: norms, additions, sums over the cores."""
        sizes, head_bytes, of_state = self.sizes, self.layout.head_bytes, self.state_parameters(layer)
        apart = self.layout.sequence_parallel and self.cores > 1 and not decoding
        own_tokens = math.ceil(tokens / self.cores) if apart else tokens
        work = Work(
            vector_elements=own_tokens * sizes.hidden * NUM_ADDITIONS,
            weight_bytes=(layer.other_elements + of_state) * head_bytes + layer.float32_elements * FLOAT32_BYTES,
            weight_rows=sum(n > 0 for n in (layer.other_elements, of_state, layer.float32_elements)),
        )
        if self.cores > 1:
            work += Work(
                num_collectives=4 if apart else 2, collective_bytes=2 * tokens * sizes.hidden * ACTIVATION_BYTES
            )
        for norm in layer.norms:
            width = norm.width if norm.of == "stream" else self._heads_width(norm)
            if norm.of == "state":
                assert layer.state is not None, "only a state has such a norm"
                width = math.ceil(layer.state.num_heads / self.cores) * norm.width
            work += Work(
                vector_elements=(own_tokens if norm.of == "stream" else tokens) * NORM_PASSES * width,
                weight_bytes=self.kept(norm) * head_bytes,
                weight_rows=norm.num_vectors,
            )
            if self.cores > 1 and norm.of in ("queries", "keys") and norm.width != sizes.head_dim:
                # Its mean is over the heads of all cores.
                work += Work(num_collectives=1, collective_bytes=tokens * SUM_BYTES)
        return work

    def _multiplied(self, projection: Projection, layer: LayerSizes, tokens: int, *, decoding: bool) -> Work:
        """Work of the matrices of a role."""
        sizes, layout, role = self.sizes, self.layout, projection.role
        inner, columns = self.of(projection)
        times, rows, dense = 1, tokens, False
        if role.startswith("expert"):
            chosen = tokens * sizes.experts_per_token
            dense = layout.dense_experts and chosen >= layer.num_experts
            if dense:
                times = layer.num_experts
            elif decoding or layout.dense_experts:
                times, rows = chosen, 1
            else:
                times, rows = layer.num_experts, math.ceil(chosen / layer.num_experts)
        element_bytes, num_biases = self.weight_bytes(projection), self.num_biases(projection)
        size_bytes = int(inner * columns * element_bytes)
        width = columns if role in JOINED_ROLES else columns // projection.num_matrices
        chunk = contiguous_bytes(inner, width, element_bytes)
        weights = Work(
            weight_bytes=times * (size_bytes + num_biases * layout.head_bytes),
            weight_rows=times * (size_bytes / chunk + int(num_biases > 0)),
        )
        if role == "absorbed" and sizes.latent is not None:
            return weights + sizes.latent.absorbed(num_heads=self.queries, tokens=tokens)
        passes = passes_of(role, num_matrices=projection.num_matrices, dense=dense)
        return weights + Work(
            flops=2 * times * rows * inner * columns,
            product_flops=2 * times * rows * inner * columns,
            tensor_cycles=times * product_cycles(rows, inner, columns),
            vector_elements=times * rows * columns * passes,
        )

    def _ends(self, tokens: int, rows: int) -> tuple[Step, ...]:
        """Embedding and head: the head makes logits of the last token of each row only."""
        sizes, columns, element = self.sizes, self.vocab, self.layout.head_bytes
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
        if self.cores > 1:
            embedding += Work(num_collectives=1, collective_bytes=tokens * sizes.hidden * ACTIVATION_BYTES)
            # A gather moves its bytes once, a sum twice.
            head += Work(num_collectives=1, collective_bytes=rows * columns * self.cores * SUM_BYTES // 2)
        host = Work(host_bytes=tokens * 8 + rows * 8)
        return (
            Step(name="embedding", work=embedding, module_path="embed_tokens"),
            Step(name="norm", work=norm, module_path="norm"),
            Step(name="head", work=head, module_path="lm_head"),
            Step(name="host", work=host),
        )
