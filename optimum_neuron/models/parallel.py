"""Tensor parallelism of a model: a plan says which modules are divided among cores, `split_module` divides them.

A plan is data: module path, with `*` for the layer, to one of `STYLES`. Families have theirs in their file; other
architectures are in `plans.py`, or transformers ships a plan with them (`base_model_tp_plan`). The module that comes
out has the shapes of one core and calls `optimum_neuron/compiler/collectives.py` where partial results meet.

    heads           projection to query, key and value heads: whole heads to each core
    packed_heads    the same in one weight: all queries, all keys, all values
    grouped_heads   the same in one weight: the queries of a key, the key, and its value, one group after the other
    bias_of_heads   a table with a column for each query head
    alibi           attention that is called with a bias for every query head
    norm_of_heads   norm over all heads, of which each core has some
    slopes          biases of heads by distance: those of its heads to each core
    from_heads      projection of the heads' results, summed over the cores
    columns, rows   a feed-forward and back, summed over the cores
    packed_columns  as columns, of two projections in one tensor; triple_columns: of three
    gathered        columns, joined over the cores
    rows_of_whole   as rows, of inputs that every core has whole
    rows_beside_heads  as rows, of the heads' results and a feed-forward, one behind the other
    experts         the width of every expert, summed over the cores; whole experts where that leaves little of each
    experts_over_cores  whole experts to each core, summed over the cores
    head_values     what an attention module has by itself: one number for each query head, such as `sinks`
    delta_heads     projections of linear attention: value heads with the key heads that they use
    delta_channels  its convolution: channels of queries, keys, and values
    vocabulary      rows of an embedding, summed over the cores

Source: Shoeybi et al. 2019, Megatron-LM, section 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..compiler import collectives
from ..errors import ModelError
from ..upstream.modeling_files import LLAMA4_EXPERTS
from ..weights import Shards, even_split, first_split, joined_split, packed_split
from .heads import Part
from .plans import Plan, pattern_of
from .splitter import Splitter, linear_size


def split_module(
    module: nn.Module,
    plan: Plan,
    *,
    num_heads: int,
    num_kv_heads: int,
    group_size: int,
    sequence_parallel: bool = False,
    sources: Mapping[str, Sequence[Any]] | None = None,
    expert_unit: int = 1,
) -> Shards:
    """Give a module without weights the shapes of one core, and exchanges where its partial results meet.

    Args:
        module: on the meta device; changed in place.
        plan: style of each module that is divided; patterns that name no module are left out.
        num_heads: query heads of a layer.
        num_kv_heads: key and value heads of a layer.
        group_size: cores that share the model.
        sequence_parallel: the module is a family's decoder, and the residual stream of a prompt is divided too.
        sources: the tensors that make each parameter; None: one each.
        expert_unit: so many neighbors of the width of an expert stay together, such as a group that shares a scale.
    """
    splitter = Splitter(module, num_heads, num_kv_heads, group_size, expert_unit)
    styles = {path: style for path, _ in module.named_modules() if (style := _style_of(path, plan))}
    if not styles:
        message = f"The plan of tensor parallelism names no module of this model: {', '.join(plan) or 'it is empty'}."
        raise ModelError(message, hint="Pass tensor_parallel_size=1.", plan=dict(plan))
    unknown = sorted(set(styles.values()) - STYLES.keys())
    if unknown:
        message = f"The plan of tensor parallelism has styles that are not supported: {', '.join(unknown)}."
        raise ModelError(message, hint="Pass tensor_parallel_size=1.", styles=unknown)
    for path, style in styles.items():
        num_sources = len((sources or {}).get(f"{path}.weight", ("",)))
        STYLES[style](splitter, path, num_sources)
    if sequence_parallel:
        splitter.tokens.attach(module)
    return Shards(group_size, splitter.shards)


def _style_of(path: str, plan: Plan) -> str | None:
    """Return the style of the pattern that names a module."""
    return plan.get(pattern_of(path)) or plan.get(path)


def _heads(splitter: Splitter, path: str, num_sources: int) -> None:
    """Whole heads to each core, for one projection, or for query, key and value that are separate in the checkpoint."""
    parent, _, name = path.rpartition(".")
    layout, attention = splitter.heads(parent), splitter.module.get_submodule(parent)
    if num_sources == 1 and name == "qkv":  # a family's, whose checkpoint has one tensor
        (_packed_heads if attention.config.qkv_order == "kinds" else _grouped_heads)(splitter, path, num_sources)
    elif num_sources > 1:
        num_parts = 2 if attention.config.has_attention_gate else 1  # of a query head
        width = _width(splitter, path, num_parts * layout.num_heads + 2 * layout.num_kv_heads)
        splitter.results(path, layout.of_queries(num_parts * width), layout.of_keys(width), layout.of_keys(width))
    elif name.startswith("q"):
        splitter.results(path, layout.of_queries(_width(splitter, path, layout.num_heads)))
    else:
        splitter.results(path, layout.of_keys(_width(splitter, path, layout.num_kv_heads)))


def _packed_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.results(path, layout.packed(_width(splitter, path, layout.num_heads + 2 * layout.num_kv_heads)))


def _grouped_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.results(path, layout.grouped(_width(splitter, path, layout.num_heads + 2 * layout.num_kv_heads)))


def _width(splitter: Splitter, path: str, num_units: int) -> int:
    """Results of a linear layer for each of its heads."""
    num_out = linear_size(splitter.module.get_submodule(path), 0)
    if num_out % num_units:
        raise ModelError(f"{path} has {num_out} results, which are no {num_units} heads.", path=path)
    return num_out // num_units


def _norm_of_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    """Each core has the weights of its heads, and the mean is that of all heads."""
    parent, _, name = path.rpartition(".")
    layout, group_size, norm = splitter.heads(parent), splitter.group_size, splitter.module.get_submodule(path)
    size, is_query = norm.weight.shape[0], name.startswith("q")
    if is_query:
        split, ranks = layout.of_queries(size // layout.num_heads), layout.queries
    else:
        split, ranks = layout.of_keys(size // layout.num_kv_heads), layout.keys
    splitter.narrow(path, "weight", 0, split)
    # Every key head has equally many copies, which the sum counts.
    num_summed = size * sum(own.count(0) for own in ranks)

    def mean_square(x: torch.Tensor) -> torch.Tensor:
        return collectives.ALL_REDUCE(x.pow(2).sum(-1, keepdim=True), group_size) / num_summed

    norm.mean_square = mean_square


def _slopes(splitter: Splitter, path: str, num_sources: int) -> None:
    """Each core has the slopes of its heads; a head of zeros has any."""
    alibi, group_size = splitter.module.get_submodule(path), splitter.group_size
    alibi.slopes = torch.stack([alibi.slopes[list(own)] for own in splitter.layout.queries])
    alibi.own_slopes = lambda: alibi.slopes.index_select(0, collectives.RANK(group_size)[None]).squeeze(0)


def _from_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.summed(path, layout.of_queries(linear_size(splitter.module.get_submodule(path), 1) // layout.num_heads))


def _bias_of_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    """A table with a column for each query head."""
    splitter.narrow(path, "weight", 1, splitter.heads(path.rpartition(".")[0]).of_queries(1))


def _alibi(splitter: Splitter, path: str, num_sources: int) -> None:
    """An attention module that gets a bias for every query head, in its first dimension, after those of a batch."""
    layout, group_size = splitter.heads(path), splitter.group_size
    own_heads = torch.tensor(layout.queries).clamp(min=0)

    def own_bias(module: nn.Module, arguments: object, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        heads = own_heads.index_select(0, collectives.RANK(group_size)[None]).flatten()
        own = {}
        for name in ("alibi", "position_bias", "attention_mask"):
            bias = options.get(name)
            if bias is None:
                continue
            if bias.dim() == 4:  # [B, N, ...], or one for all heads
                own[name] = bias if bias.shape[1] == 1 else bias.index_select(1, heads)
            else:
                own[name] = bias.unflatten(0, (-1, layout.num_heads)).index_select(1, heads).flatten(0, 1)
        return arguments, {**options, **own}

    splitter.module.get_submodule(path).register_forward_pre_hook(own_bias, with_kwargs=True)


def _columns(splitter: Splitter, path: str, num_sources: int) -> None:
    size = linear_size(splitter.module.get_submodule(path), 0) // num_sources
    splitter.results(path, *[even_split(size, splitter.group_size)] * num_sources)


def _packed_columns(splitter: Splitter, path: str, num_sources: int, *, num_packed: int = 2) -> None:
    size = linear_size(splitter.module.get_submodule(path), 0)
    splitter.results(path, packed_split(size, num_packed, splitter.group_size))


def _rows(splitter: Splitter, path: str, num_sources: int) -> None:
    splitter.summed(path, even_split(linear_size(splitter.module.get_submodule(path), 1), splitter.group_size))


def _rows_of_whole(splitter: Splitter, path: str, num_sources: int) -> None:
    """Each core takes its columns of an input that all of them have."""
    linear, group_size = splitter.module.get_submodule(path), splitter.group_size
    _rows(splitter, path, num_sources)
    num_columns = linear.in_features

    def own_columns(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (x,) = inputs
        padded = nn.functional.pad(x, (0, group_size * num_columns - x.shape[-1]))
        rank = collectives.RANK(group_size)[None]
        return (padded.unflatten(-1, (group_size, num_columns)).index_select(-2, rank).squeeze(-2),)

    linear.register_forward_pre_hook(own_columns)


def _rows_beside_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    parent = path.rpartition(".")[0]
    block: Any = splitter.module.get_submodule(parent)
    layout, wide = splitter.heads(f"{parent}.attn"), block.mlp_hidden_dim
    size = (linear_size(block.get_submodule(path.rpartition(".")[2]), 1) - wide) // layout.num_heads
    splitter.summed(path, joined_split([layout.of_queries(size), even_split(wide, splitter.group_size)]))


MIN_EXPERT_WIDTH = 32
"""Columns of an expert on each core, below which cores have whole experts: TensorE multiplies 128 rows at a time."""


def _experts(splitter: Splitter, path: str, num_sources: int) -> None:
    """Part of the width of every expert; weights have three dimensions, as in transformers.

    A token that chooses few experts reads its part of these from the memory of every core at once.
    """
    experts: Any = splitter.module.get_submodule(path)
    if LLAMA4_EXPERTS.matches(experts):
        _experts_of_all_tokens(splitter, path)
        return
    group_size = splitter.group_size
    width = experts.down_proj.shape[1 if experts.is_transposed else 2]
    if width < group_size * MIN_EXPERT_WIDTH and experts.num_experts >= group_size:
        _experts_over_cores(splitter, path, num_sources)
        return
    if experts.has_post_expert_norm:
        raise ModelError(
            f"{path} has a norm after each expert, which needs the whole sum.", hint="Pass tensor_parallel_size=1."
        )
    up, wide_dim = ("gate_up_proj", "up_proj")[not experts.has_gate], 2 if experts.is_transposed else 1
    size = getattr(experts, up).shape[wide_dim]
    unit = splitter.expert_unit if width % splitter.expert_unit == 0 else 1
    if not experts.has_gate:
        split = even_split(size, group_size, unit=unit)
    elif experts.is_concatenated:
        split = joined_split([even_split(width, group_size, unit=unit)] * 2)
    else:  # gate and up alternate, and stay together
        split = even_split(size, group_size, unit=2 * unit)
    splitter.narrow(path, up, wide_dim, split)
    splitter.narrow(path, f"{up}_bias", 1, split)
    down_dim = 3 - wide_dim
    splitter.narrow(path, "down_proj", down_dim, even_split(width, group_size, unit=unit))
    if experts.has_bias:
        # Along the experts: the first core has the biases, and the others zeros.
        splitter.narrow(path, "down_proj_bias", 0, first_split(experts.down_proj_bias.shape[0], group_size))
    experts.register_forward_hook(lambda module, inputs, x: splitter.tokens.sum(x))


def _experts_of_all_tokens(splitter: Splitter, path: str) -> None:
    """Part of the width of every expert, where a module gets each token for each expert: [E, D, gate and up]."""
    experts: Any = splitter.module.get_submodule(path)
    width = even_split(experts.down_proj.shape[1], splitter.group_size)
    splitter.narrow(path, "gate_up_proj", 2, joined_split([width] * 2))
    splitter.narrow(path, "down_proj", 1, width)
    experts.register_forward_hook(lambda module, inputs, x: splitter.tokens.sum(x))


def _experts_over_cores(splitter: Splitter, path: str, num_sources: int) -> None:
    """Whole experts to each core, which counts as zero what a token chose on others; parts are views of the files."""
    experts: Any = splitter.module.get_submodule(path)
    group_size = splitter.group_size
    split = even_split(experts.num_experts, group_size)
    for name, _ in [*experts.named_parameters(recurse=False)]:
        splitter.narrow(path, name, 0, split)
    num_own = experts.num_experts = split.local_size

    def own_experts(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        x, index, weight = inputs
        return x, index - collectives.RANK(group_size) * num_own, weight

    experts.register_forward_pre_hook(own_experts)
    experts.register_forward_hook(lambda module, inputs, x: splitter.tokens.sum(x))


def _head_values(splitter: Splitter, path: str, num_sources: int) -> None:
    for name, _ in [*splitter.module.get_submodule(path).named_parameters(recurse=False)]:
        splitter.narrow(path, name, 0, splitter.heads(path).of_queries(1))


def _delta_heads(splitter: Splitter, path: str, num_sources: int) -> None:
    """Two tensors: queries, keys, values, and gates; rates and time steps. Both by key head."""
    parent = path.rpartition(".")[0]
    layout, config = splitter.heads(parent), splitter.module.get_submodule(parent).config
    key: Part = ("key", config.key_dim)
    values: Part = ("queries", config.value_dim)
    scalars = layout.groups(("queries", 1), ("queries", 1))
    splitter.results(path, layout.groups(key, key, values, values), scalars)


def _delta_channels(splitter: Splitter, path: str, num_sources: int) -> None:
    parent = path.rpartition(".")[0]
    layout, config = splitter.heads(parent), splitter.module.get_submodule(parent).config
    keys = layout.of_keys(config.key_dim)
    splitter.results(path, joined_split([keys, keys, layout.of_queries(config.value_dim)]))


def _gathered(splitter: Splitter, path: str, num_sources: int) -> None:
    linear, group_size = splitter.module.get_submodule(path), splitter.group_size
    size = linear.out_features
    _columns(splitter, path, num_sources)

    def gather(module: nn.Module, inputs: tuple[Any, ...], result: Any) -> Any:
        x, *others = result if isinstance(result, tuple) else (result,)  # others: hidden states, which are whole
        x = collectives.ALL_GATHER(x, x.dim() - 1, group_size).narrow(-1, 0, size)
        return (x, *others) if others else x

    linear.register_forward_hook(gather)


def _vocabulary(splitter: Splitter, path: str, num_sources: int) -> None:
    """Each core looks up the tokens of its rows; the others count as zeros."""
    embedding, group_size = splitter.module.get_submodule(path), splitter.group_size
    splitter.narrow(path, "weight", 0, even_split(embedding.weight.shape[0], group_size))
    num_rows = embedding.num_embeddings = embedding.weight.shape[0]
    embedding.padding_idx = None

    def own_rows(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        row = inputs[0] - collectives.RANK(group_size) * num_rows
        module.is_own = (row >= 0) & (row < num_rows)
        return (row.clamp(0, num_rows - 1),)

    def joined(module: nn.Module, inputs: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        own = torch.where(module.is_own[..., None], x, torch.zeros((), dtype=x.dtype))
        del module.is_own
        return collectives.ALL_REDUCE(own, group_size)

    # First of all hooks: others may scale the result, once.
    embedding.register_forward_pre_hook(own_rows)
    embedding.register_forward_hook(joined, prepend=True)


STYLES: dict[str, Callable[[Splitter, str, int], None]] = {
    "heads": _heads,
    "packed_heads": _packed_heads,
    "grouped_heads": _grouped_heads,
    "bias_of_heads": _bias_of_heads,
    "alibi": _alibi,
    "norm_of_heads": _norm_of_heads,
    "slopes": _slopes,
    "from_heads": _from_heads,
    "columns": _columns,
    "packed_columns": _packed_columns,
    "triple_columns": functools.partial(_packed_columns, num_packed=3),
    "rows": _rows,
    "rows_of_whole": _rows_of_whole,
    "rows_beside_heads": _rows_beside_heads,
    "experts": _experts,
    "experts_over_cores": _experts_over_cores,
    "head_values": _head_values,
    "delta_heads": _delta_heads,
    "delta_channels": _delta_channels,
    "gathered": _gathered,
    "vocabulary": _vocabulary,
}
"""What each style does to a module."""
