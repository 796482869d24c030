"""What most transformers configurations, checkpoints and plans have in common; families change what differs.

A layer of a name is `{}` in a weight map and `*` in a plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from .config import DecoderConfig, LayerKind, Norm, Rotary

if TYPE_CHECKING:
    from .decoder import Decoder, MakeModule

WEIGHT_MAP: dict[str, tuple[str, ...]] = {
    "embed.weight": ("model.embed_tokens.weight",),
    "layers.{}.attention_norm.weight": ("model.layers.{}.input_layernorm.weight",),
    "layers.{}.attention.qkv.weight": (
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
    ),
    "layers.{}.attention.out.weight": ("model.layers.{}.self_attn.o_proj.weight",),
    "layers.{}.mlp_norm.weight": ("model.layers.{}.post_attention_layernorm.weight",),
    "layers.{}.mlp.gate_up.weight": (
        "model.layers.{}.mlp.gate_proj.weight",
        "model.layers.{}.mlp.up_proj.weight",
    ),
    "layers.{}.mlp.down.weight": ("model.layers.{}.mlp.down_proj.weight",),
    "head.norm.weight": ("model.norm.weight",),
    "head.weight": ("lm_head.weight",),
}
"""Where each parameter comes from in checkpoints with Llama's names; several sources are joined along dimension 0.

A row ending in ".weight" also holds for ".bias" where the configuration has one.
"""

PLAN: dict[str, str] = {
    "embed": "vocabulary",
    "layers.*.attention.qkv": "heads",
    "layers.*.attention.out": "from_heads",
    "layers.*.mlp.gate_up": "columns",
    "layers.*.mlp.up": "columns",
    "layers.*.mlp.down": "rows",
    "head": "gathered",
}
"""How tensor parallelism divides the shared blocks, with a gate or without, see `models/parallel.py`."""

HEAD_NORMS: dict[str, tuple[str, ...]] = {
    "layers.{}.attention.query_norm.weight": ("model.layers.{}.self_attn.q_norm.weight",),
    "layers.{}.attention.key_norm.weight": ("model.layers.{}.self_attn.k_norm.weight",),
}
"""Where norms of queries and keys come from."""

MIXTURE_WEIGHT_MAP: dict[str, tuple[str, ...]] = {
    "layers.{}.mlp.router.weight": ("model.layers.{}.mlp.gate.weight",),
    "layers.{}.mlp.experts.gate_up_proj": ("model.layers.{}.mlp.experts.gate_up_proj",),
    "layers.{}.mlp.experts.down_proj": ("model.layers.{}.mlp.experts.down_proj",),
}
"""Where the parameters of `Mixture` come from, under the names that transformers has after loading."""

MIXTURE_PLAN: dict[str, str] = {
    "layers.*.mlp.experts": "experts",
    "layers.*.mlp.shared.gate_up": "columns",
    "layers.*.mlp.shared.down": "rows",
}
"""How tensor parallelism divides `Mixture`; every core has the router."""


def shared_weight_map(name: str) -> dict[str, tuple[str, ...]]:
    """Where the weights of a mixture's shared expert come from, whose module transformers calls `name`."""
    path = f"model.layers.{{}}.mlp.{name}"
    return {
        "layers.{}.mlp.shared.gate_up.weight": (f"{path}.gate_proj.weight", f"{path}.up_proj.weight"),
        "layers.{}.mlp.shared.down.weight": (f"{path}.down_proj.weight",),
    }


def read_sizes(config: PreTrainedConfig) -> dict[str, Any]:
    """The sizes of `DecoderConfig` under the names that most transformers configurations have for them."""
    return {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": facts_of(config).num_key_value_heads or config.num_attention_heads,
        "head_dim": read_head_dim(config),
        "intermediate_size": facts_of(config).intermediate_size or 0,
        "vocab_size": config.vocab_size,
        "tie_embeddings": config.tie_word_embeddings,
    }


def read_decoder(
    config: PreTrainedConfig,
    layers: LayerKind | Iterable[LayerKind] | None = None,
    *,
    attention: MakeModule | None = None,
    feed_forward: MakeModule | None = None,
    has_attention_bias: bool = False,
    **options: Any,
) -> Decoder:
    """Return a decoder with uninitialized parameters: sizes, norm and activation are those under Llama's names.

    Args:
        config: a transformers configuration.
        layers: kind of all layers, or of each; None for rotary positions, and windows by `layer_types`.
        attention: makes another block of a layer.
        feed_forward: likewise.
        has_attention_bias: all projections of attention have one.
        **options: fields of `DecoderConfig`, which take precedence.
    """
    from .decoder import Decoder

    if layers is None:
        rotary = read_rotary(config)
        layers = [LayerKind(rotary=rotary, window=window) for window in read_windows(config)]
    kinds = (layers,) * config.num_hidden_layers if isinstance(layers, LayerKind) else tuple(layers)
    options = read_sizes(config) | dict.fromkeys(("has_qkv_bias", "has_output_bias"), has_attention_bias) | options
    options.setdefault("activation", facts_of(config).hidden_act or "silu")
    if "norm" not in options:
        options["norm"] = Norm(eps=config.rms_norm_eps)
    makers = {"attention": attention, "feed_forward": feed_forward}
    own = {name: make for name, make in makers.items() if make is not None}
    return Decoder(DecoderConfig(layers=kinds, **options), **own)


def read_windows(config: PreTrainedConfig) -> list[int | None]:
    """The window of each layer, by `layer_types` where the configuration has them."""
    types = facts_of(config).layer_types or ["sliding_attention"] * config.num_hidden_layers
    window = facts_of(config).sliding_window
    return [window if layer_type == "sliding_attention" else None for layer_type in types]


def read_head_dim(config: PreTrainedConfig) -> int:
    """Width of a head, which a configuration may leave out."""
    return facts_of(config).head_dim or config.hidden_size // config.num_attention_heads


def read_rotary(
    config: PreTrainedConfig, layer_type: str | None = None, *, is_partial: bool = False, is_interleaved: bool = False
) -> Rotary:
    """Frequencies of rotary positions.

    Args:
        layer_type: type of layer, where the configuration has several settings.
        is_partial: the architecture heeds `partial_rotary_factor`; Llama and others do not.
        is_interleaved: see `Rotary`.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    rope_type = rope.get("rope_type", "default")
    if rope_type == "default":
        width = int(read_head_dim(config) * (rope.get("partial_rotary_factor", 1.0) if is_partial else 1.0))
        return plain_rotary(width, rope["rope_theta"], is_interleaved=is_interleaved)
    options = {} if layer_type is None else {"layer_type": layer_type}
    frequencies, scale = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", **options)
    return Rotary(inv_freq=tuple(frequencies.tolist()), scale=scale, is_interleaved=is_interleaved)


def plain_rotary(width: int, theta: float, *, is_interleaved: bool = False) -> Rotary:
    """Unscaled rotary positions of so many channels of a head (Su et al. 2021, eq. 15)."""
    import torch

    # In float32 as the checkpoint was trained: double precision would shift late positions.
    exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
    return Rotary(inv_freq=tuple((1.0 / theta**exponents).tolist()), is_interleaved=is_interleaved)


def rotary_gap(config: PreTrainedConfig) -> str | None:
    """Say which rotary scaling of a configuration the shared blocks do not implement, or None."""
    rope = config.rope_parameters or {}
    for one in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        rope_type = one.get("rope_type")
        is_fixed = rope_type == "longrope" and one.get("short_factor") == one.get("long_factor")
        if rope_type in ("dynamic", "longrope") and not is_fixed:
            return f"rope_type={rope_type} (frequencies depend on the length)"
    return None


def activation_gap(name: str, activation: str) -> str | None:
    """Say that the shared blocks do not implement an activation, which a configuration has in field `name`, or None."""
    from .layers import ACTIVATIONS

    return None if activation in ACTIVATIONS else f"{name}={activation}"


def uncovered(config: PreTrainedConfig) -> str | None:
    """Say which option of a configuration with Llama's names the shared blocks do not implement, or None."""
    return activation_gap("hidden_act", config.hidden_act) or rotary_gap(config)


def mixture_uncovered(config: PreTrainedConfig) -> str | None:
    """Say the same for shared experts, which have SiLU."""
    activation = config.hidden_act
    return rotary_gap(config) if activation in ("silu", "swish") else f"hidden_act={activation}"
