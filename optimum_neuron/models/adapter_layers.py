"""The linear layers of a decoder that get stacks of adapters, their sources in the checkpoint, and their shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from torch import nn

from ..errors import ConfigError, nearest
from ..weights import Shard, Shards
from .adapters import STACK_NAMES, AdapterPlan, RowAdapters
from .common import LatentAttention
from .plans import pattern_of
from .registry import Family
from .splitter import is_transposed, linear_size


def with_adapters(family: Family, *, max_loras: int, max_rank: int, targets: Collection[str] | None) -> Family:
    """Return a decoder with stacks in its linear layers; the module is changed in place.

    Args:
        family: the decoder, divided among cores already.
        max_loras: adapters that are loaded at once.
        max_rank: largest rank of an adapter.
        targets: ends of the names of modules in the checkpoint, as PEFT's `target_modules`; None for all linear layers
            of the decoder's layers.
    """
    linears = _linear_layers(family)
    names = sorted({name.rpartition(".")[2] for sources in linears.values() for name in sources})
    unknown = [target for target in targets or () if not any(_ends(n, target) for s in linears.values() for n in s)]
    if unknown or not linears:
        listed = ", ".join(f"{name!r}{nearest(name, names)}" for name in unknown)
        raise ConfigError(
            f"lora_target_modules names no linear layer of this decoder: {listed}."
            if unknown
            else "max_loras is not supported: this decoder has no linear layers that take adapters.",
            hint=f"Use {', '.join(names)}." if names else "Remove max_loras.",
            option="lora_target_modules",
            value=unknown,
            choices=names,
        )
    layers = {
        path: parts
        for path, sources in linears.items()
        if (parts := tuple(n for n in sources if targets is None or any(_ends(n, target) for target in targets)))
    }
    largest = max(linear_size(family.module.get_submodule(path), dim) for path in layers for dim in (0, 1))
    if max_rank > largest:
        message = f"max_lora_rank={max_rank} is more than the {largest} inputs or outputs of the largest layer."
        hint = "Pass the rank of your adapters, usually 8 to 64."
        raise ConfigError(message, hint=hint, option="max_lora_rank", value=max_rank, largest=largest)
    plan = AdapterPlan(max_loras=max_loras, max_rank=max_rank, layers=layers)
    adapters = RowAdapters(plan, needs_all=targets is not None)
    sources, shards = dict(family.weight_sources), dict(family.shards.of_weights)
    for path, parts in layers.items():
        linear = family.module.get_submodule(path)
        adapters.attach(linear, len(parts))
        sources |= {f"{path}.{name}": () for name in STACK_NAMES}
        if weight := shards.get(f"{path}.weight"):
            shards |= _shard_of_stack(path, weight, is_transposed(linear))
    return dataclasses.replace(
        family, weight_sources=sources, shards=Shards(family.shards.group_size, shards), adapters=adapters
    )


def _linear_layers(family: Family) -> dict[str, tuple[str, ...]]:
    """Linear layers inside the decoder's layers, each with the modules of the checkpoint that make its results."""
    layers = {}
    for path, module in family.module.named_modules():
        owner, _, name = path.rpartition(".")
        around = family.module.get_submodule(owner)
        is_excluded = isinstance(around, LatentAttention) and name in around.without_adapters
        is_linear = (type(module) is nn.Linear or is_transposed(module)) and not is_excluded
        sources = family.weight_sources.get(f"{path}.weight", ()) if is_linear and pattern_of(path) != path else ()
        if sources:
            layers[path] = tuple(source.removesuffix(".weight") for source in sources)
    return layers


def _ends(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _shard_of_stack(path: str, weight: Shard, transposed: bool) -> dict[str, Shard]:
    """The stack whose dimension of inputs or of results is divided as the layer's weight."""
    is_of_inputs = (weight.dim == 1) != transposed
    name, dim = (STACK_NAMES[0], 2) if is_of_inputs else (STACK_NAMES[1], 1)
    return {f"{path}.{name}": Shard(dim, weight.splits)}
