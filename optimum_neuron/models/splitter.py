"""A module that is divided among cores: parameters get the shapes of one core, attention the counts of its heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..base.foreign import module_facts
from ..errors import ModelError
from ..upstream.modeling_files import CONV1D
from ..weights import Shard, Split, first_split
from .common import TransposedLinear
from .heads import HeadLayout, head_layout
from .sequence import TokenSplit

_QUERY_COUNTS = ("num_heads", "num_attention_heads", "n_heads")
_KEY_COUNTS = ("num_key_value_heads", "num_kv_heads")
_WIDTHS = ("all_head_size", "inner_dim", "split_size")
"""Attributes of transformers' attention modules: query heads, key heads, and elements of all query heads."""


class Splitter:
    """Divides one module; tied parameters are divided once."""

    def __init__(
        self, module: nn.Module, num_heads: int, num_kv_heads: int, group_size: int, expert_unit: int = 1
    ) -> None:
        self.module, self.group_size, self.expert_unit = module, group_size, expert_unit
        self.tokens = TokenSplit(group_size)
        self.shards: dict[str, Shard] = {}
        self.layout = head_layout(num_heads, num_kv_heads, group_size)
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
            if hasattr(attention, "heads"):  # of a family's attention by kind, of diffusers' one number
                is_one = isinstance(attention.heads, int)
                attention.heads = num_queries if is_one else (num_queries, num_keys, num_keys)
            self._layouts[path] = layout
        return self._layouts[path]

    def _layout_of(self, attention: nn.Module) -> HeadLayout:
        """Heads by the counts that the module has; by those of the configuration where it has none."""
        num_heads = _count(attention, _QUERY_COUNTS)
        if num_heads is None:
            return self.layout
        num_groups = _count(attention, ("num_key_value_groups",)) or 1
        return head_layout(num_heads, _count(attention, _KEY_COUNTS) or num_heads // num_groups, self.group_size)

    def narrow(self, path: str, name: str, dim: int, *splits: Split) -> None:
        """Give a parameter the shape that it has on one core."""
        owner = self.module.get_submodule(path)
        parameter = getattr(owner, name, None)
        if parameter is None:
            return
        if is_transposed(owner) and name == "weight":
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
        elif CONV1D.matches(owner):
            owner.nx, owner.nf = owner.weight.shape

    def results(self, path: str, *splits: Split) -> None:
        """Divide the results of a linear layer, which consist of parts that are divided like this."""
        self.narrow(path, "weight", 0, *splits)
        self.narrow(path, "bias", 0, *splits)

    def summed(self, path: str, split: Split) -> None:
        """Divide the inputs of a linear layer, and sum its results over the cores."""
        linear = self.module.get_submodule(path)
        self.narrow(path, "weight", 1, split)
        self.narrow(path, "bias", 0, first_split(linear_size(linear, 0), self.group_size))
        linear.register_forward_hook(lambda module, inputs, x: self.tokens.sum(x))


def is_transposed(module: nn.Module) -> bool:
    """Whether the weight of a layer is [inputs, results], as in GPT-2."""
    return isinstance(module, TransposedLinear) or CONV1D.matches(module)


def linear_size(linear: nn.Module, dim: int) -> int:
    """Results (0) or inputs (1) of a linear layer."""
    if module_facts(linear).weight is None:
        kind = type(linear).__name__
        message = f"The plan of tensor parallelism divides the weight of a {kind}, which has none."
        raise ModelError(message, hint="Pass tensor_parallel_size=1.", module=kind)
    return int(linear.weight.shape[1 - dim if is_transposed(linear) else dim])


def _count(module: nn.Module, names: Sequence[str]) -> int | None:
    return next((value for name in names if isinstance(value := getattr(module, name, None), int)), None)


def _replace(module: nn.Module, name: str, value: int) -> None:
    if isinstance(getattr(module, name, None), int):
        setattr(module, name, value)
