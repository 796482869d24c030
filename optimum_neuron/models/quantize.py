"""Quantization of a built decoder: which matrices are quantized, and with which scheme.

Linear layers and experts get the scheme. The head, and an embedding that is tied to it, get 8 bits by rows with every
scheme: the head chooses the tokens, and it is the largest matrix of a small model. Norms, untied embeddings (a step
reads one row), and routers are not quantized. The choice lists the layers that were left out, with the reasons.
Quantized matrices are stored as [outputs, inputs], also in GPT-2, whose plain ones are [inputs, outputs].

    family = quantize_decoder(build_decoder(config, dtype="bfloat16"), Scheme.parse("int8"))
    print(family.quantization)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from torch import nn

from ..base.core import Choice, Rejected
from ..base.wording import listed
from ..errors import ModelError
from ..weights import HEAD_SCHEME, Recipe, Scheme, Shard
from .common import QuantizedEmbedding, QuantizedLinear
from .quantized_experts import expert_weights
from .quantized_parts import empty_parts, obstacle_of_inputs, part_name, part_shard
from .registry import Family
from .splitter import is_transposed

_DIRECT = ("kv_up", "shared_gate", "gate", "router")
"""Linear layers whose weight is used without calling them, and routers of experts."""

_MAX_NAMED = 4


@dataclasses.dataclass(frozen=True)
class _Weight:
    """A weight and the modules that have it."""

    name: str
    """First name of the parameter."""
    owners: tuple[tuple[str, Any], ...]
    """Path and module of each."""
    is_transposed: bool
    """Whether the plain weight has its inputs before its outputs."""

    @property
    def is_lookup(self) -> bool:
        return any(isinstance(owner, nn.Embedding) for _, owner in self.owners)

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        first, second = self.owners[0][1].weight.shape
        return (second, first) if self.is_transposed else (first, second)


def quantize_decoder(
    family: Family, scheme: Scheme, modules_to_not_convert: Collection[str] = (), *, head_scheme: Scheme = HEAD_SCHEME
) -> Family:
    """Return a decoder whose linear layers are quantized; its module is changed in place.

    Args:
        family: a decoder without weights, as `build_decoder` returns it, split or not.
        scheme: how linear layers are quantized.
        modules_to_not_convert: names of modules in the checkpoint, or the ends or parts of names, as in transformers.
        head_scheme: how the head is quantized.
    """
    sources, of_weights = dict(family.weight_sources), dict(family.shards.of_weights)
    left: dict[str, str] = {}
    named = [name for names in sources.values() for name in names] + ["lm_head.weight"]
    unknown = {key for key in modules_to_not_convert if not any(_is_named(name, key) for name in named)}
    head = _head(family.module)
    num_matrices, num_experts, head_of, is_wished = 0, 0, "", False
    for weight in _weights(family.module):
        names = sources[weight.name]
        is_head = any(owner is head for _, owner in weight.owners)
        own = head_scheme if is_head else scheme
        # Also where the head is the embedding, and the checkpoint has no tensor of its name.
        aliases = (*names, "lm_head.weight") if is_head else names
        shard = of_weights.get(weight.name)
        if shard is not None and weight.is_transposed:
            shard = Shard(1 - shard.dim, shard.splits)
        wish = _wish(aliases, modules_to_not_convert)
        is_wished = is_wished or wish is not None
        reason = wish or _obstacle(weight, own, shard)
        if reason is not None:
            left[names[0].removesuffix(".weight")] = reason
            continue
        _convert(weight, own)
        for part in own.parts:
            name = part_name(weight.name, part)
            sources[name] = tuple(Recipe(source, own, part, weight.is_transposed).name for source in names)
            if (local := part_shard(shard, own, part, 1)) is not None:
                of_weights[name] = local
        num_matrices += 1
        head_of = own.name if is_head else head_of
    # A product with experts does not quantize its inputs.
    of_experts = dataclasses.replace(scheme, is_dynamic=False)
    for experts in expert_weights(family.module):
        names, shard = sources[experts.path], of_weights.get(experts.path)
        reason = _wish(names, modules_to_not_convert) or experts.obstacle(of_experts, shard)
        if reason is not None:
            left[names[0]] = reason
            continue
        experts.convert(of_experts)
        for part in of_experts.parts:
            name = part_name(experts.path, part)
            sources[name] = tuple(Recipe(one, of_experts, part, experts.is_transposed).name for one in names)
            if (local := part_shard(experts.quantized_shard(shard), of_experts, part, 2)) is not None:
                of_weights[name] = local
        num_experts += 1
    # Who keeps the other layers by name wants the head alone.
    num_others = num_matrices + num_experts - (head_of != "" and not is_wished)
    _require_useful(num_others, unknown, left)
    return dataclasses.replace(
        family,
        weight_sources=sources,
        shards=dataclasses.replace(family.shards, of_weights=of_weights),
        quantization=_choice(scheme, head_of, (num_matrices, num_experts), left),
    )


def _wish(names: Sequence[str], modules_to_not_convert: Collection[str]) -> str | None:
    """Return a reason if a user wants a weight to stay."""
    is_named = any(_is_named(name, key) for name in names for key in modules_to_not_convert)
    return "named by modules_to_not_convert" if is_named else None


def _weights(module: nn.Module) -> Iterator[_Weight]:
    """Matrices of linear layers, and of embeddings that share one with a linear layer, each once."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for path, owner in module.named_modules():
        if isinstance(owner, (nn.Linear, nn.Embedding)) or is_transposed(owner):
            owners.setdefault(id(owner.weight), []).append((path, owner))
    for key, modules in owners.items():
        if not all(isinstance(owner, nn.Embedding) for _, owner in modules):
            yield _Weight(names[key], tuple(modules), any(is_transposed(owner) for _, owner in modules))


def _head(module: nn.Module) -> nn.Module:
    return module.head if hasattr(module, "head") else module.model.get_output_embeddings()


def _is_named(source: str, key: str) -> bool:
    """Return whether a name of `modules_to_not_convert` means a tensor: its module, one around it, or a part of it."""
    module = source.removesuffix(".weight")
    return module == key or module.endswith(f".{key}") or f".{key}." in f".{module}."


def _obstacle(weight: _Weight, scheme: Scheme, shard: Shard | None) -> str | None:
    """Say why a weight is not quantized, or return None."""
    path = weight.owners[0][0]
    if path.rpartition(".")[2] in _DIRECT:
        return "its weight is used without its layer, or chooses experts"
    for _, owner in weight.owners:
        module = type(owner).__module__
        if isinstance(owner, nn.Embedding) and type(owner) is not nn.Embedding and not module.startswith(__package__):
            return f"it is also a {type(owner).__name__}"
    if weight.is_lookup and scheme.kind == "int4":
        return "it is also an embedding, whose rows have 8 bits"
    if scheme.kind == "mxfp4":
        return "mxfp4 is a scheme of experts"
    return obstacle_of_inputs(weight.shape[1], scheme, shard, 1)


def _convert(weight: _Weight, scheme: Scheme) -> None:
    """Give the modules of a weight its parts, with the shapes that they have on one core."""
    before = weight.owners[0][1].weight
    num_outputs, num_inputs = weight.shape
    parts = empty_parts((num_outputs, num_inputs), scheme, before.device)
    for _, owner in weight.owners:
        owner.plain_dtype, owner.is_dynamic = before.dtype, scheme.is_dynamic
        for part, parameter in parts.items():
            owner.register_parameter(part_name("weight", part), parameter)
        if type(owner) is nn.Embedding:
            owner.__class__ = QuantizedEmbedding
        elif weight.is_transposed or not type(owner).__module__.startswith(__package__):
            owner.__class__ = QuantizedLinear
            owner.out_features, owner.in_features = num_outputs, num_inputs


def _require_useful(converted: int, unknown: Collection[str], left: dict[str, str]) -> None:
    if unknown:
        message = f"modules_to_not_convert names modules that this model does not have: {', '.join(sorted(unknown))}."
        hint = "Use the names of the checkpoint's modules, such as lm_head or model.layers.0.mlp.down_proj."
        raise ModelError(message, hint=hint, option="modules_to_not_convert", modules=sorted(unknown))
    if not converted:
        problems = listed([f"{name}: {reason}" for name, reason in left.items()], _MAX_NAMED, separator="; ")
        message = f"No layer of this model but the head can be quantized: {problems or 'it has no linear layer'}."
        hint = "Pass int8, int4, or fp8, or remove quantization."
        raise ModelError(message, hint=hint, option="quantization", modules=left)


def _choice(scheme: Scheme, head_scheme: str, numbers: tuple[int, int], left: dict[str, str]) -> Choice[str]:
    """The scheme, with the layers that stay as they are and why."""
    groups: dict[str, list[str]] = {}
    for name, reason in left.items():
        groups.setdefault(reason, []).append(name)
    head = f", the head in {head_scheme}" if head_scheme not in ("", scheme.name) else ""
    inputs = f"; each token that they multiply in {scheme.kind}" if scheme.is_dynamic else ""
    counts = (
        f"{number} {what}" for number, what in zip(numbers, ("matrices", "weights of experts"), strict=True) if number
    )
    return Choice(
        value=scheme.name,
        reason=f"{' and '.join(counts)}{head}{inputs}; norms and embeddings of their own stay",
        rejected=tuple(Rejected(candidate=listed(names, _MAX_NAMED), reason=why) for why, names in groups.items()),
    )
