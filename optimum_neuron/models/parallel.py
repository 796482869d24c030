"""Tensor parallelism of a model: a plan says which modules are divided among cores, `split_module` divides them.

A plan is data: module path, with `*` for the layer, to one of `STYLES`. Families have theirs in `plan.py`; other
architectures are in `plans.py`, or transformers ships a plan with them (`base_model_tp_plan`). The module that comes
out has the shapes of one core and calls `optimum_neuron/compiler/collectives.py` where partial results meet.

    heads           projection to query, key and value heads: whole heads to each core
    packed_heads    the same in one weight: all queries, all keys, all values
    grouped_heads   the same in one weight: the queries of a key, the key, and its value, one group after the other
    bias_of_heads   a table with a column for each query head
    alibi           attention that is called with a bias for every query head
    from_heads      projection of the heads' results, summed over the cores
    columns, rows   a feed-forward and back, summed over the cores
    gathered        columns, joined over the cores
    rows_of_whole   as rows, of inputs that every core has whole
    experts         the width of every expert, summed over the cores
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
from ..errors import ModelError
from ..weights import Shard, Shards, Split, even_split, first_split, packed_split
from .heads import HeadLayout, head_layout
from .plans import Plan

_QUERY_COUNTS = ("num_heads", "num_attention_heads", "n_heads")
_KEY_COUNTS = ("num_key_value_heads", "num_kv_heads")
_WIDTHS = ("all_head_size", "inner_dim", "split_size")
"""Attributes of transformers' attention modules: query heads, key heads, and elements of all query heads."""


class _Splitter:
    """Divides one module; tied parameters are divided once."""

    def __init__(self, module: nn.Module, num_heads: int, num_kv_heads: int, group_size: int) -> None:
        self.module, self.group_size = module, group_size
        self.shards: dict[str, Shard] = {}
        self._layout = head_layout(num_heads, num_kv_heads, group_size)
        self._layouts: dict[str, HeadLayout] = {}
        self._parameters: dict[int, nn.Parameter] = {}
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}

    def heads(self, path: str) -> HeadLayout:
        """Return the heads of an attention module, which has the counts of one core from then on."""
        if path not in self._layouts:
            attention = self.module.get_submodule(path)
            layout = self._layout_of(attention)
            num_queries, num_keys = layout.num_local
            for name in _QUERY_COUNTS:
                _replace(attention, name, num_queries)
            for name in _KEY_COUNTS:
                _replace(attention, name, num_keys)
            for name in _WIDTHS:
                _replace(attention, name, (_count(attention, (name,)) or 0) // layout.num_heads * num_queries)
            _replace(attention, "num_key_value_groups", num_queries // num_keys)
            if hasattr(attention, "heads"):
                attention.heads = (num_queries, num_keys, num_keys)
            self._layouts[path] = layout
        return self._layouts[path]

    def _layout_of(self, attention: nn.Module) -> HeadLayout:
        """Heads by the counts that the module has; by those of the configuration where it has none."""
        num_heads = _count(attention, _QUERY_COUNTS)
        if num_heads is None:
            return self._layout
        num_groups = _count(attention, ("num_key_value_groups",)) or 1
        return head_layout(num_heads, _count(attention, _KEY_COUNTS) or num_heads // num_groups, self.group_size)

    def narrow(self, path: str, name: str, dim: int, *splits: Split) -> None:
        """Give a parameter the shape that it has on one core."""
        owner = self.module.get_submodule(path)
        parameter = getattr(owner, name, None)
        if parameter is None:
            return
        if _is_transposed(owner) and name == "weight":
            dim = 1 - dim
        if id(parameter) not in self._parameters:
            shape = list(parameter.shape)
            shape[dim] = sum(split.local_size for split in splits) if dim == 0 else splits[0].local_size
            local = nn.Parameter(torch.empty(shape, dtype=parameter.dtype, device="meta"), requires_grad=False)
            self._parameters[id(parameter)] = local
            self.shards[self._names[id(parameter)]] = Shard(dim, splits)
        setattr(owner, name, self._parameters[id(parameter)])
        if isinstance(owner, nn.Linear):
            owner.out_features, owner.in_features = owner.weight.shape
        elif _is_transposed(owner):
            owner.nx, owner.nf = owner.weight.shape

    def results(self, path: str, *splits: Split) -> None:
        """Divide the results of a linear layer, which consist of parts that are divided like this."""
        self.narrow(path, "weight", 0, *splits)
        self.narrow(path, "bias", 0, *splits)

    def summed(self, path: str, split: Split) -> None:
        """Divide the inputs of a linear layer, and sum its results over the cores."""
        linear = self.module.get_submodule(path)
        self.narrow(path, "weight", 1, split)
        self.narrow(path, "bias", 0, first_split(_size(linear, 0), self.group_size))
        group_size = self.group_size
        linear.register_forward_hook(lambda module, inputs, x: collectives.ALL_REDUCE(x, group_size))


def _is_transposed(module: nn.Module) -> bool:
    """Whether the weight of a layer is [inputs, results], as in GPT-2."""
    return type(module).__name__ == "Conv1D"


def _size(linear: nn.Module, dim: int) -> int:
    """Results (0) or inputs (1) of a linear layer."""
    return int(linear.weight.shape[1 - dim if _is_transposed(linear) else dim])


def _count(module: nn.Module, names: Sequence[str]) -> int | None:
    return next((value for name in names if isinstance(value := getattr(module, name, None), int)), None)


def _replace(module: nn.Module, name: str, value: int) -> None:
    if isinstance(getattr(module, name, None), int):
        setattr(module, name, value)


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
    splitter = _Splitter(module, num_heads, num_kv_heads, group_size)
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
    """Whole heads to each core, for one projection, or for query, key and value that are separate in the checkpoint."""
    parent, _, name = path.rpartition(".")
    layout = splitter.heads(parent)
    if num_sources > 1:
        width = _width(splitter, path, layout.num_heads + 2 * layout.num_kv_heads)
        splitter.results(path, layout.of_queries(width), layout.of_keys(width), layout.of_keys(width))
    elif name.startswith("q"):
        splitter.results(path, layout.of_queries(_width(splitter, path, layout.num_heads)))
    else:
        splitter.results(path, layout.of_keys(_width(splitter, path, layout.num_kv_heads)))


def _packed_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.results(path, layout.packed(_width(splitter, path, layout.num_heads + 2 * layout.num_kv_heads)))


def _grouped_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.results(path, layout.grouped(_width(splitter, path, layout.num_heads + 2 * layout.num_kv_heads)))


def _width(splitter: _Splitter, path: str, num_units: int) -> int:
    """Results of a linear layer for each of its heads."""
    num_out = _size(splitter.module.get_submodule(path), 0)
    if num_out % num_units:
        raise ModelError(f"{path} has {num_out} results, which are no {num_units} heads.", path=path)
    return num_out // num_units


def _from_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    layout = splitter.heads(path.rpartition(".")[0])
    splitter.summed(path, layout.of_queries(_size(splitter.module.get_submodule(path), 1) // layout.num_heads))


def _bias_of_heads(splitter: _Splitter, path: str, num_sources: int) -> None:
    """A table with a column for each query head."""
    splitter.narrow(path, "weight", 1, splitter.heads(path.rpartition(".")[0]).of_queries(1))


def _alibi(splitter: _Splitter, path: str, num_sources: int) -> None:
    """An attention module that gets a bias for every query head, in its first dimension, after those of a batch."""
    layout, group_size = splitter.heads(path), splitter.group_size
    own_heads = torch.tensor(layout.queries).clamp(min=0)

    def own_bias(module: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name = "alibi" if "alibi" in options else "position_bias"
        bias = options.get(name)
        if bias is None:
            return arguments, options
        heads = own_heads.index_select(0, collectives.RANK(group_size)[None]).flatten()
        own = bias.unflatten(0, (-1, layout.num_heads)).index_select(1, heads).flatten(0, 1)
        return arguments, {**options, name: own}

    splitter.module.get_submodule(path).register_forward_pre_hook(own_bias, with_kwargs=True)


def _columns(splitter: _Splitter, path: str, num_sources: int) -> None:
    size = _size(splitter.module.get_submodule(path), 0) // num_sources
    splitter.results(path, *[even_split(size, splitter.group_size)] * num_sources)


def _rows(splitter: _Splitter, path: str, num_sources: int) -> None:
    splitter.summed(path, even_split(_size(splitter.module.get_submodule(path), 1), splitter.group_size))


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


def _experts(splitter: _Splitter, path: str, num_sources: int) -> None:
    """Part of the width of every expert: transformers' experts, which keep their weights in three dimensions."""
    experts, group_size = splitter.module.get_submodule(path), splitter.group_size
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
    "packed_heads": _packed_heads,
    "grouped_heads": _grouped_heads,
    "bias_of_heads": _bias_of_heads,
    "alibi": _alibi,
    "from_heads": _from_heads,
    "columns": _columns,
    "rows": _rows,
    "rows_of_whole": _rows_of_whole,
    "experts": _experts,
    "gathered": _gathered,
    "vocabulary": _vocabulary,
}
"""What each style does to a module."""
