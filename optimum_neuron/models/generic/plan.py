"""transformers' own plans of tensor parallelism, in the styles of `models/parallel.py`."""

from __future__ import annotations

import re
from typing import Any

from ...errors import ModelError
from ...weights import Shards
from ..parallel import split_module
from .model import WITH_OTHER_STATES, GenericDecoder

_STYLES = {
    "colwise": "columns",
    "rowwise": "rows",
    "colwise_rep": "gathered",
    "colwise_gather_output": "gathered",
    "rowwise_split_input": "rows_of_whole",
    "moe_tp_experts": "experts",
    "embedding_rowwise": "vocabulary",
}
"""transformers' names (5.23, `integrations/tensor_parallel.py`) of styles for linear layers and embeddings."""

_ON_EVERY_CORE = ("replicate", "replicated_with_grad_allreduce", "mla_kv_a_proj")
"""Styles of what every core has whole."""

_HEADS = {"q_proj": "heads", "k_proj": "heads", "v_proj": "heads", "o_proj": "from_heads"}
"""Projections that are divided by whole heads, whatever the plan calls it."""


def split_generic(decoder: GenericDecoder, group_size: int) -> Shards:
    """Divide a transformers decoder among cores; it gets the shapes of one core.

    Raises:
        ModelError: transformers ships no plan for this architecture, or one with styles that are not supported; or
            layers keep other states than keys and values, whose heads no plan names.
    """
    model, config = decoder.model, decoder.text_config
    if kinds := sorted(WITH_OTHER_STATES & set(getattr(config, "layer_types", None) or ())):
        raise ModelError(
            f"Layers of {config.model_type} cannot be divided among cores: {', '.join(kinds)}.",
            hint="Pass tensor_parallel_size=1.",
            model_type=config.model_type,
            layer_types=kinds,
        )
    plan: dict[str, str] = dict(getattr(model, "tp_plan", None) or {})
    if not plan:
        raise ModelError(
            f"transformers has no plan of tensor parallelism for {config.model_type} (base_model_tp_plan).",
            hint="Pass tensor_parallel_size=1.",
            model_type=config.model_type,
        )
    modules = {re.sub(r"\.\d+(?=\.|$)", ".*", path) for path, _ in model.named_modules()}
    translated = {
        f"model.{path}": _style(path, style)
        for path, style in plan.items()
        if path in modules and style not in _ON_EVERY_CORE
    }
    translated |= _ends(decoder)
    return split_module(
        decoder,
        translated,
        num_heads=config.num_attention_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        group_size=group_size,
    )


def _style(path: str, style: str) -> str:
    by_heads = _HEADS.get(path.rpartition(".")[2]) if style in ("colwise", "rowwise") else None
    return by_heads or _STYLES.get(style, style)


def _ends(decoder: GenericDecoder) -> dict[str, str]:
    """Embedding and head, which share a weight in many models."""
    model: Any = decoder.model
    styles = {id(model.get_input_embeddings()): "vocabulary", id(model.get_output_embeddings()): "gathered"}
    return {path: styles[id(module)] for path, module in decoder.named_modules() if id(module) in styles}
