"""Choose a family for a configuration, with the reason, and build its decoder.

A family is a module of this package that has `MODEL_TYPES`; the registry finds it by its file, so that a new one is
listed nowhere.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..base.core import AttentionKernel, Choice, KVCacheDtype, Rejected
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, invalid_choice
from ..weights import Shards
from .common import LayerState, cache_choice, choose_attention, counts_tokens, ring_choice, stored_as, take_scales
from .generic import weight_map as generic_weight_map

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .adapters import RowAdapters
    from .common import Decoder
    from .generic import GenericDecoder

GENERIC = "generic"
"""Name of the path that runs transformers' own modeling code."""

LAYER_STATES = "hidden_states."
"""Begins the name of what a layer gets, or what the last one returns: "hidden_states.2" is the input of layer 2."""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""Types of layers that a family has if its file does not say otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A built decoder and the map from its parameters to checkpoint names."""

    choice: Choice[str]
    """Family name, or "generic", and why."""
    module: nn.Module
    """Called as `module(input_ids, positions, states, cached=, last_index_B=)`."""
    weight_sources: dict[str, tuple[str, ...]]
    """Parameter name to the checkpoint tensors that are joined along dimension 0."""
    states: tuple[LayerState, ...]
    """What each layer keeps between calls."""
    shards: Shards = Shards()
    """Parameters that are divided among cores; the module has the shapes of one core."""
    attention: Choice[str] | None = None
    """How transformers' own code attends, and why; None in a family, which has its own."""
    quantization: Choice[str] | None = None
    """Scheme of its linear layers, and which stay as they are; None if nothing is quantized."""
    outputs: tuple[str, ...] = ("logits",)
    """Names of the module's results."""
    layer_results: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Further results of graphs by name: paths of layers in the module."""
    windows: Choice[str] | None = None
    """What layers with a window keep, "ring" or "whole", and why; None if no window is shorter than a sequence."""
    attention_kernel: Choice[str] | None = None
    """What attends in prompts in place of torch's operators, and which layers keep those; None: nothing."""
    kv_cache: Choice[str] | None = None
    """What keys and values are stored in, and which states keep their dtype; None for the dtype of the weights."""
    adapters: RowAdapters | None = None
    """LoRA adapters that its linear layers have room for; None: graphs take no adapters."""

    @property
    def counts_tokens(self) -> bool:
        """Whether graphs take the number of each row's real tokens."""
        return counts_tokens(self.states)


def with_hidden_states(
    family: Family, layers: Sequence[int] | None = None, *, sequence_parallel: bool = False
) -> Family:
    """Let a decoder of the shared blocks return hidden states for drafts; others do not.

    Args:
        family: the decoder. Its graphs return "last_hidden_state", what the head projects.
        layers: numbers of layers whose inputs they return too, as "hidden_states.2", up to the number of layers; None
            for those that EAGLE-3 drafts read unless they say otherwise.
        sequence_parallel: cores divide the tokens of prompts, so that none has the whole states.
    """
    from .common import Decoder

    if not isinstance(family.module, Decoder) or sequence_parallel:
        if layers is None:
            return family
        way = " with sequence_parallel=True" if sequence_parallel else ""
        message = f"hidden_state_layers is not supported for the {family.choice.value} decoder{way}."
        hint = "Use a model of an optimized family without sequence_parallel, or remove it."
        raise ConfigError(message, hint=hint, option="hidden_state_layers", value=tuple(layers))
    family.module.head.returns_hidden_states = True
    num_layers = len(family.module.layers)
    layers = eagle_layers(num_layers) if layers is None else layers
    if wrong := [layer for layer in layers if not 1 <= layer <= num_layers]:
        message = f"hidden_state_layers has {', '.join(map(str, wrong))}, but the inputs of layers 1 to {num_layers}"
        hint = f"Pass numbers from 1 to {num_layers}, which is the result of the last layer."
        raise ConfigError(f"{message} can be returned.", hint=hint, option="hidden_state_layers", value=tuple(layers))
    results = {f"{LAYER_STATES}{layer}": f"layers.{layer - 1}" for layer in layers}
    return dataclasses.replace(family, outputs=("logits", "last_hidden_state"), layer_results=results)


def eagle_layers(num_layers: int) -> tuple[int, ...]:
    """Return the layers whose inputs an EAGLE-3 draft reads unless its configuration names others."""
    return tuple(min(max(layer, 1), num_layers) for layer in (2, num_layers // 2, num_layers - 3))


class FamilyModule(Protocol):
    """What the file of a family has."""

    MODEL_TYPES: tuple[str, ...]
    """`model_type` values of configurations that the family covers."""
    WEIGHT_MAP: Mapping[str, tuple[str, ...]]
    """Where each parameter comes from, see `common/reading.py`."""
    PLAN: Mapping[str, str]
    """How tensor parallelism divides the modules, see `parallel.py`."""

    # `LAYER_TYPES` too, where a configuration's `layer_types` may name others than full and sliding attention.

    def uncovered(self, config: PreTrainedConfig) -> str | None:
        """Say which option of a configuration the family does not implement, or None."""

    def build(self, config: PreTrainedConfig) -> Decoder:
        """Return the decoder of a configuration, with uninitialized parameters."""


@functools.cache
def families() -> Mapping[str, FamilyModule]:
    """Return the modules of this package that are families, by name."""
    names = [found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)]) if not found.ispkg]
    modules: dict[str, Any] = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "MODEL_TYPES")}


def choose_family(config: PreTrainedConfig, *, family: str | None = None) -> Choice[str]:
    """Say which implementation takes a transformers configuration.

    Args:
        config: a transformers configuration.
        family: force "generic" or a family by name; None chooses.

    Raises:
        ConfigError: the forced family does not cover this configuration.
    """
    if family is not None and family not in (*families(), GENERIC):
        raise invalid_choice("family", family, (*families(), GENERIC))
    covering = {name: one for name, one in families().items() if config.model_type in one.MODEL_TYPES}
    gaps = {name: _gap(one, config) for name, one in covering.items()}
    rejected = tuple(Rejected(candidate=name, reason=f"does not implement {gap}") for name, gap in gaps.items() if gap)
    complete = [name for name, gap in gaps.items() if gap is None and family in (None, name)]
    if complete:
        reason = f"model_type {config.model_type}, every option covered"
        return Choice(value=complete[0], reason=reason, rejected=rejected)
    if family not in (None, GENERIC):
        problem = f"covers model_type {', '.join(families()[family].MODEL_TYPES)}"
        problem = f"does not implement {gaps[family]}" if family in gaps else problem
        message = f"family={family!r} cannot run this {config.model_type} model: it {problem}."
        raise ConfigError(message, hint=f"Use family={GENERIC!r}.", option="family", value=family, problem=problem)
    reason = f"no optimized decoder for model_type {config.model_type}"
    for name, gap in gaps.items():
        reason = f"family {name} covers model_type {config.model_type}, but does not implement {gap}"
    return Choice(value=GENERIC, reason="asked for by name" if family else reason, rejected=rejected)


def _gap(module: FamilyModule, config: PreTrainedConfig) -> str | None:
    """What a configuration of a family's model type needs and the family does not have."""
    known = getattr(module, "LAYER_TYPES", LAYER_TYPES)
    others = sorted(set(facts_of(config).layer_types or ()) - set(known))
    return f"layer_types={', '.join(others)}" if others else module.uncovered(config)


def build_decoder(
    config: PreTrainedConfig,
    *,
    dtype: str,
    family: str | None = None,
    trust_remote_code: bool = False,
    group_size: int = 1,
    sequence_parallel: bool = False,
    num_tokens: int | None = None,
    is_paged: bool = False,
    kv_cache_dtype: KVCacheDtype = "auto",
    attention_kernel: AttentionKernel = "plain",
    expert_unit: int = 1,
) -> Family:
    """Build the decoder of a transformers configuration of a causal language model, without weights.

    Args:
        config: the transformers configuration.
        dtype: torch's name of the weights' dtype.
        family: force an implementation; None chooses.
        trust_remote_code: let the generic path run code that comes with a checkpoint.
        group_size: cores that share every layer.
        sequence_parallel: they also divide the residual stream of prompts, see `sequence.py`.
        num_tokens: length of the longest sequence: windows that it does not fill are left out, and rotary frequencies
            that follow the length are those of shorter ones.
        is_paged: the cache is divided into blocks, in which every token has a slot.
        kv_cache_dtype: what keys and values are stored in.
        attention_kernel: what attends in prompts.
        expert_unit: see `parallel.split_module`; the generic path has none.
    """
    choice = choose_family(config, family=family)
    sizes: dict[str, Any] = {
        "dtype": dtype,
        "group_size": group_size,
        "num_tokens": num_tokens,
        "is_paged": is_paged,
        "kv_cache_dtype": kv_cache_dtype,
    }
    if choice.value != GENERIC:
        parts: dict[str, Any] = {"sequence_parallel": sequence_parallel, "expert_unit": expert_unit}
        return family_decoder(choice, config, attention_kernel=attention_kernel, **parts, **sizes)
    require_family(choice, sequence_parallel=sequence_parallel, attention_kernel=attention_kernel)
    from .generic import build

    return generic_decoder(choice, build(config, trust_remote_code=trust_remote_code), **sizes)


def generic_decoder(
    choice: Choice[str],
    module: GenericDecoder,
    *,
    dtype: str,
    group_size: int = 1,
    num_tokens: int | None = None,
    is_paged: bool = False,
    kv_cache_dtype: KVCacheDtype = "auto",
) -> Family:
    """The decoder of transformers' own code: a module that was built without weights, and is cast in place."""
    import torch

    from .generic import fix_frequencies, probe_states, ring_states

    fix_frequencies(module.model, module.text_config, num_tokens)
    cast_parameters(module, getattr(torch, dtype))
    shards = Shards()
    if group_size > 1:
        from .generic import split_generic

        shards = split_generic(module, group_size)
    states = [stored_as(state, kv_cache_dtype) for state in probe_states(module)]
    module.states, windows = (tuple(states), None) if is_paged else ring_states(module, states, num_tokens)
    names = [name for name, _ in module.named_parameters()] + [name for name, _ in persistent_buffers(module)]
    return Family(
        choice=choice,
        module=module,
        weight_sources=generic_weight_map(names),
        states=module.states,
        attention=module.attention,
        windows=windows,
        kv_cache=cache_choice(module.states, kv_cache_dtype, _cache_obstacle(module, kv_cache_dtype)),
        shards=shards,
    )


def _cache_obstacle(module: GenericDecoder, dtype: KVCacheDtype) -> str | None:
    kinds = facts_of(module.text_config).layer_types or ()
    if "indexed_attention" in kinds:
        return "the keys of its indexer are stored with the values"
    return "the generic path has no scales of a checkpoint" if dtype == "fp8-static" else None


def require_family(choice: Choice[str], *, sequence_parallel: bool, attention_kernel: AttentionKernel) -> None:
    """Check that a decoder can do what only families can, if that is asked for."""
    if attention_kernel != "plain" and choice.value == GENERIC:
        from .common import unsupported

        raise unsupported(f"it uses the generic path ({choice.reason})")
    if sequence_parallel and choice.value == GENERIC:
        raise ConfigError(
            f"sequence_parallel=True needs a decoder family, but this model uses the generic path ({choice.reason}).",
            hint="Remove sequence_parallel: tensor_parallel_size alone divides the model.",
            option="sequence_parallel",
            value=True,
            reason=choice.reason,
        )


def family_decoder(
    choice: Choice[str],
    config: PreTrainedConfig,
    *,
    dtype: str,
    group_size: int = 1,
    sequence_parallel: bool = False,
    num_tokens: int | None = None,
    is_paged: bool = False,
    kv_cache_dtype: KVCacheDtype = "auto",
    attention_kernel: AttentionKernel = "plain",
    expert_unit: int = 1,
) -> Family:
    """The decoder of a family that covers a transformers configuration."""
    import torch
    from accelerate import init_empty_weights

    definition = families()[choice.value]
    with init_empty_weights(include_buffers=False):
        module = definition.build(config)
    if num_tokens is not None:
        module.limit(num_tokens)
    module.is_paged, module.kv_cache_dtype = is_paged, kv_cache_dtype
    kernel = None if attention_kernel == "plain" else choose_attention(module, attention_kernel)
    weight_map = dict(definition.WEIGHT_MAP)
    if kv_cache_dtype == "fp8-static":
        weight_map |= take_scales(module.layers, weight_map)
    if module.config.tie_embeddings:
        module.head.weight = module.embed.weight
    cast_parameters(module, getattr(torch, dtype))
    names = [name for name, _ in (*module.named_parameters(), *persistent_buffers(module))]
    sources = {name: _family_source(weight_map, name) for name in names}
    shards = Shards()
    if group_size > 1:
        from .parallel import split_module

        shards = split_module(
            module,
            definition.PLAN,
            num_heads=module.config.num_heads,
            num_kv_heads=module.config.num_kv_heads,
            group_size=group_size,
            sequence_parallel=sequence_parallel,
            sources=sources,
            expert_unit=expert_unit,
        )
    return Family(
        choice=choice,
        module=module.eval(),
        weight_sources=sources,
        states=module.states,
        windows=ring_choice(module.states),
        attention_kernel=kernel,
        kv_cache=cache_choice(module.states, kv_cache_dtype),
        shards=shards,
    )


def cast_parameters(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast parameters only: computed buffers such as rotary frequencies stay in float32."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)


def cast_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast parameters and what else a checkpoint has, such as statistics of norms; computed buffers stay."""
    cast_parameters(module, dtype)
    for path, buffer in persistent_buffers(module):
        if buffer.is_floating_point():
            owner, _, name = path.rpartition(".")
            module.get_submodule(owner)._buffers[name] = buffer.to(dtype)


def persistent_buffers(module: nn.Module) -> list[tuple[str, Any]]:
    """Buffers that a checkpoint has, by path."""
    buffers = []
    for path, owner in module.named_modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if name not in owner._non_persistent_buffers_set:
                buffers.append((f"{path}.{name}" if path else name, buffer))
    return buffers


def _family_source(weight_map: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    stem, _, kind = name.rpartition(".")
    parts = stem.split(".")
    layer = next((part for part in parts if part.isdigit()), "")
    key = ".".join("{}" if part == layer and layer else part for part in parts)
    if exact := weight_map.get(f"{key}.{kind}"):
        return tuple(source.replace("{}", layer) for source in exact)
    sources = weight_map[f"{key}.weight"]
    return tuple(source.replace("{}", layer).removesuffix("weight") + kind for source in sources)
