"""Tensor parallelism of transformers' own modules: our plan of an architecture, or the one that transformers ships."""

from __future__ import annotations

from torch import nn

from ...base.foreign import module_facts
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...errors import ModelError
from ...weights import Shards
from ..heads import require_group_size
from ..parallel import split_module
from ..plans import PLANS, pattern_of
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
    """Divide a transformers decoder among cores; it gets the shapes of one core."""
    config = decoder.text_config
    if kinds := sorted(WITH_OTHER_STATES & set(facts_of(config).layer_types or ())):
        message = f"Layers of {config.model_type} cannot be divided among cores: {', '.join(kinds)}."
        hint = "Pass tensor_parallel_size=1; pipeline_parallel_size puts the layers on several cores."
        raise ModelError(message, hint=hint, model_type=config.model_type, layer_types=kinds)
    return split_transformers(decoder, decoder.model, config, group_size, ends=True)


def split_transformers(
    module: nn.Module, model: nn.Module, config: PreTrainedConfig, group_size: int, *, ends: bool
) -> Shards:
    """Divide a transformers model among cores; it gets the shapes of one core.

    Args:
        module: the model, or what wraps it: weights are named as in this one.
        ends: also divide the vocabulary of embedding and head.
    """
    root = next(path for path, inner in module.named_modules() if inner is model)
    plan = {f"{root}.{path}" if root else path: style for path, style in _plan(model, config).items()}
    if not plan:
        message = f"There is no plan of tensor parallelism for {config.model_type}, and transformers has none either "
        message += "(base_model_tp_plan)."
        hint = "Pass tensor_parallel_size=1; pipeline_parallel_size puts the layers of a decoder on several cores."
        raise ModelError(message, hint=hint, model_type=config.model_type)
    num_heads = facts_of(config).num_attention_heads or group_size
    require_group_size(group_size, num_heads=num_heads, model_type=config.model_type)
    return split_module(
        module,
        plan | (_ends(module, model) if ends else {}),
        num_heads=num_heads,
        num_kv_heads=facts_of(config).num_key_value_heads or num_heads,
        group_size=group_size,
    )


def _plan(model: nn.Module, config: PreTrainedConfig) -> dict[str, str]:
    """Styles of a model's modules by their paths."""
    paths = {pattern_of(path) for path, _ in model.named_modules()}
    if config.model_type in PLANS:
        ours = PLANS[config.model_type]
        # A head is around the base model, under a name that depends on the task.
        return {path: ours[name] for path in paths for name in ours if path == name or path.endswith(f".{name}")}
    return {
        path: _style(path, style)
        for path, style in dict(module_facts(model).tp_plan or {}).items()
        if path in paths and style not in _ON_EVERY_CORE
    }


def _style(path: str, style: str) -> str:
    by_heads = _HEADS.get(path.rpartition(".")[2]) if style in ("colwise", "rowwise") else None
    return by_heads or _STYLES.get(style, style)


def _ends(module: nn.Module, model: nn.Module) -> dict[str, str]:
    """Embeddings of the vocabulary and head, which share a weight in many models."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    return {
        path: "gathered" if inner is head else "vocabulary"
        for path, inner in module.named_modules()
        if inner is head or (isinstance(inner, nn.Embedding) and inner.weight is embedding.weight)
    }
