"""Tensor parallelism of a decoder: a plan says which modules are divided among cores, `split_module` divides them.

A plan is data: module path, with `*` for the layer, to one of `STYLES`. Families have theirs in their file; the generic
path takes the one that transformers ships with an architecture (`base_model_tp_plan`). The module that comes out has
the shapes of one core and calls `optimum_neuron/compiler/collectives.py` where partial results meet.

    heads           projection to query, key and value heads: whole heads to each core
    norm_of_heads   norm over all heads, of which each core has some
    from_heads      projection of the heads' results, summed over the cores
    slopes          biases of heads by distance: those of its heads to each core
    columns, rows   a feed-forward and back, summed over the cores
    packed_columns  as columns, of two projections in one tensor
    gathered        columns, joined over the cores
    rows_of_whole   as rows, of inputs that every core has whole
    experts         the width of every expert, summed over the cores; whole experts where that leaves little of each
    experts_over_cores  whole experts to each core, summed over the cores
    head_values     one number for each query head, `sinks`
    vocabulary      rows of an embedding, summed over the cores

Source: Shoeybi et al. 2019, Megatron-LM, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..compiler import collectives
from ..errors import ConfigError, ModelError
from ..weights import Shard, Shards, Split, even_split, first_split, joined_split, packed_split, unit_split
from .common import TransposedLinear
from .heads import Heads, grouped_heads, head_layout

Plan = Mapping[str, str]
"""Module path to style."""


class _Splitter:
    """Divides one module; tied parameters are divided once."""

    def __init__(self, module: nn.Module, heads: Heads, group_size: int) -> None:
        self.module, self.heads, self.group_size = module, heads, group_size
        self.shards: dict[str, Shard] = {}
        self._parameters: dict[int, nn.Parameter] = {}
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}

    def narrow(self, path: str, name: str, dim: int, *splits: Split) -> None:
        """Give a parameter the shape that it has on one core."""
        owner = self.module.get_submodule(path)
        parameter = getattr(owner, name, None)
        if parameter is None:
            return
        if id(parameter) not in self._parameters:
            shape = list(parameter.shape)
            shape[dim] = sum(split.local_size for split in splits) if dim == 0 else splits[0].local_size
            local = nn.Parameter(torch.empty(shape, dtype=parameter.dtype, device="meta"), requires_grad=False)
            self._parameters[id(parameter)] = local
            self.shards[self._names[id(parameter)]] = Shard(dim, splits)
        setattr(owner, name, self._parameters[id(parameter)])
        if isinstance(owner, nn.Linear):
            owner.out_features, owner.in_features = owner.weight.shape

    def is_transposed(self, path: str) -> bool:
        """Whether a projection's weight has its inputs in dimension 0."""
        return isinstance(self.module.get_submodule(path), TransposedLinear)

    def sizes(self, path: str) -> tuple[int, int]:
        """Results and inputs of a projection."""
        first, second = self.module.get_submodule(path).weight.shape
        return (second, first) if self.is_transposed(path) else (first, second)

    def results(self, path: str, *splits: Split) -> None:
        """Divide the results of a linear layer, which consist of one or several tensors."""
        self.narrow(path, "weight", 1 if self.is_transposed(path) else 0, *splits)
        self.narrow(path, "bias", 0, *splits)

    def summed(self, path: str, split: Split) -> None:
        """Divide the inputs of a linear layer, and sum its results over the cores."""
        linear, group_size = self.module.get_submodule(path), self.group_size
        num_results = self.sizes(path)[0]
        self.narrow(path, "weight", 0 if self.is_transposed(path) else 1, split)
        self.narrow(path, "bias", 0, first_split(num_results, group_size))
        linear.register_forward_hook(lambda module, inputs, x: collectives.ALL_REDUCE(x, group_size))


def split_module(
    module: nn.Module,
    plan: Plan,
    *,
    num_heads: int,
    num_kv_heads: int,
    group_size: int,
    sources: Mapping[str, Sequence[Any]] | None = None,
) -> Shards:
    """Give a module without weights the shapes of one core, and exchanges where its partial results meet.

    Args:
        module: on the meta device; changed in place.
        plan: style of each module that is divided; patterns that name no module are left out.
        num_heads: query heads of a layer.
        num_kv_heads: key and value heads of a layer.
        group_size: cores that share the model.
        sources: the tensors that make each parameter; None: one each.

    Raises:
        ModelError: the plan names no module at all, or a style that is not implemented.
    """
    heads = Heads(
        num_heads=num_heads, num_kv_heads=num_kv_heads, layout=head_layout(num_heads, num_kv_heads, group_size)
    )
    splitter = _Splitter(module, heads, group_size)
    styles = {path: style for path, _ in module.named_modules() if (style := _style_of(path, plan))}
    if not styles:
        raise ModelError(
            f"The plan of tensor parallelism names no module of this model: {', '.join(plan) or 'it is empty'}.",
            hint="Pass tensor_parallel_size=1.",
            plan=dict(plan),
        )
    unknown = sorted(set(styles.values()) - STYLES.keys())
    if unknown:
        raise ModelError(
            f"The plan of tensor parallelism has styles that are not supported: {', '.join(unknown)}.",
            hint="Pass tensor_parallel_size=1.",
            styles=unknown,
        )
    for path, style in styles.items():
        num_sources = len((sources or {}).get(f"{path}.weight", ("",)))
        STYLES[style](splitter, path, num_sources)
    return Shards(group_size, splitter.shards)


def _style_of(path: str, plan: Plan) -> str | None:
    """Return the style of the pattern that names a module."""
    return plan.get(re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)) or plan.get(path)


def _heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Whole heads to each core, for one projection, or for query, key and value in one."""
    heads, (num_queries, num_keys) = splitter.heads, splitter.heads.layout.num_local
    parent_path, _, name = path.rpartition(".")
    attention, (num_out, _) = splitter.module.get_submodule(parent_path), splitter.sizes(path)
    is_fused, is_query = name == "qkv", name.startswith("q")
    units = heads.num_heads + 2 * heads.num_kv_heads
    units = units if is_fused else heads.num_heads if is_query else heads.num_kv_heads
    if num_out % units:
        raise ModelError(f"{path} has {num_out} results, which are no {units} heads.", path=path)
    width = num_out // units
    query = unit_split(heads.num_heads, width, heads.layout.queries)
    key = unit_split(heads.num_kv_heads, width, heads.layout.keys)
    if not is_fused:
        splitter.results(path, query if is_query else key)
    elif num_sources > 1:
        splitter.results(path, query, key, key)
    elif attention.config.qkv_order == "kinds":
        splitter.results(path, joined_split([query, key, key]))
    else:
        splitter.results(path, unit_split(units, width, grouped_heads(heads)))
    if hasattr(attention, "heads"):
        attention.heads = (num_queries, num_keys, num_keys)
    if hasattr(attention, "num_key_value_groups"):
        attention.num_key_value_groups = num_queries // num_keys


def _norm_of_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Each core has the weights of its heads, and the mean is that of all heads."""
    heads, group_size, norm = splitter.heads, splitter.group_size, splitter.module.get_submodule(path)
    is_query = path.rpartition(".")[2].startswith("q")
    num_heads, layout = (heads.num_heads, heads.layout.queries) if is_query else (heads.num_kv_heads, heads.layout.keys)
    size = norm.weight.shape[0]
    splitter.narrow(path, "weight", 0, unit_split(num_heads, size // num_heads, layout))
    # Every key head has equally many copies, which the sum counts.
    num_summed = size * sum(own.count(0) for own in layout)

    def mean_square(x: torch.Tensor) -> torch.Tensor:
        return collectives.ALL_REDUCE(x.pow(2).sum(-1, keepdim=True), group_size) / num_summed

    norm.mean_square = mean_square


def _slopes(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Each core has the slopes of its heads; a head of zeros has any."""
    alibi, group_size = splitter.module.get_submodule(path), splitter.group_size
    alibi.slopes = torch.stack([alibi.slopes[list(own)] for own in splitter.heads.layout.queries])
    alibi.own_slopes = lambda: alibi.slopes.index_select(0, collectives.RANK(group_size)[None]).squeeze(0)


def _from_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    heads = splitter.heads
    width = splitter.sizes(path)[1] // heads.num_heads
    splitter.summed(path, unit_split(heads.num_heads, width, heads.layout.queries))


def _columns(splitter: _Splitter, path: str, num_sources: int) -> None:
    size = splitter.sizes(path)[0] // num_sources
    splitter.results(path, *[even_split(size, splitter.group_size)] * num_sources)


def _packed_columns(splitter: _Splitter, path: str, num_sources: int) -> None:
    splitter.results(path, packed_split(splitter.sizes(path)[0], 2, splitter.group_size))


def _rows(splitter: _Splitter, path: str, num_sources: int) -> None:
    splitter.summed(path, even_split(splitter.sizes(path)[1], splitter.group_size))


def _rows_of_whole(splitter: _Splitter, path: str, num_sources: int) -> None:
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


MIN_EXPERT_WIDTH = 32
"""Columns of an expert on each core, below which cores have whole experts: TensorE multiplies 128 rows at a time."""


def _experts(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Part of the width of every expert; weights have three dimensions, as in transformers.

    A token that chooses few experts reads its part of these from the memory of every core at once.
    """
    experts: Any = splitter.module.get_submodule(path)
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
    if not experts.has_gate:
        split = even_split(size, group_size)
    elif experts.is_concatenated:
        split = packed_split(size, 2, group_size)
    else:  # gate and up alternate, and stay together
        pairs = even_split(size // 2, group_size)
        split = Split(
            size, tuple(tuple((start if start < 0 else 2 * start, 2 * n) for start, n in part) for part in pairs.parts)
        )
    splitter.narrow(path, up, wide_dim, split)
    splitter.narrow(path, f"{up}_bias", 1, split)
    down_dim = 3 - wide_dim
    splitter.narrow(path, "down_proj", down_dim, even_split(experts.down_proj.shape[down_dim], group_size))
    if experts.has_bias:
        # Along the experts: the first core has the biases, and the others zeros.
        splitter.narrow(path, "down_proj_bias", 0, first_split(experts.down_proj_bias.shape[0], group_size))
    experts.register_forward_hook(lambda module, inputs, x: collectives.ALL_REDUCE(x, group_size))


def _experts_over_cores(splitter: _Splitter, path: str, num_sources: int) -> None:
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
    experts.register_forward_hook(lambda module, inputs, x: collectives.ALL_REDUCE(x, group_size))


def _head_values(splitter: _Splitter, path: str, num_sources: int) -> None:
    heads = splitter.heads
    splitter.narrow(path, "sinks", 0, unit_split(heads.num_heads, 1, heads.layout.queries))


def _gathered(splitter: _Splitter, path: str, num_sources: int) -> None:
    linear, group_size = splitter.module.get_submodule(path), splitter.group_size
    size = linear.out_features
    _columns(splitter, path, num_sources)

    def gather(module: nn.Module, inputs: Any, x: torch.Tensor) -> torch.Tensor:
        return collectives.ALL_GATHER(x, x.dim() - 1, group_size).narrow(-1, 0, size)

    linear.register_forward_hook(gather)


def _vocabulary(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Each core looks up the tokens of its rows; the others count as zeros."""
    embedding, group_size = splitter.module.get_submodule(path), splitter.group_size
    splitter.narrow(path, "weight", 0, even_split(embedding.weight.shape[0], group_size))
    num_rows = embedding.num_embeddings = embedding.weight.shape[0]
    embedding.padding_idx = None

    def own_rows(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        row = inputs[0] - collectives.RANK(group_size) * num_rows
        module.is_own = (row >= 0) & (row < num_rows)
        return (row.clamp(0, num_rows - 1),)

    def joined(module: Any, inputs: Any, x: torch.Tensor) -> torch.Tensor:
        own = torch.where(module.is_own[..., None], x, torch.zeros((), dtype=x.dtype))
        del module.is_own
        return collectives.ALL_REDUCE(own, group_size)

    # First of all hooks: others may scale the result, once.
    embedding.register_forward_pre_hook(own_rows)
    embedding.register_forward_hook(joined, prepend=True)


STYLES: dict[str, Callable[[_Splitter, str, int], None]] = {
    "heads": _heads,
    "norm_of_heads": _norm_of_heads,
    "from_heads": _from_heads,
    "slopes": _slopes,
    "columns": _columns,
    "packed_columns": _packed_columns,
    "rows": _rows,
    "rows_of_whole": _rows_of_whole,
    "experts": _experts,
    "experts_over_cores": _experts_over_cores,
    "head_values": _head_values,
    "gathered": _gathered,
    "vocabulary": _vocabulary,
}
"""What each style does to a module."""


def require_group_size(group_size: int, *, num_heads: int, model_type: str) -> None:
    """Check that a model can be divided among so many cores.

    Raises:
        ConfigError: there are more cores than query heads.
    """
    if group_size > num_heads:
        raise ConfigError(
            f"tensor_parallel_size={group_size} is more than the {num_heads} attention heads of this {model_type} "
            "model: some cores would have none.",
            hint=f"Pass at most {num_heads}.",
            option="tensor_parallel_size",
            value=group_size,
            num_heads=num_heads,
        )
