"""Parameters that tensor parallelism splits, as data: names of modules, with `*` for layer numbers, to styles.

A style is one of transformers' (`transformers.distributed.tensor_parallel`), which are DTensor placements: "colwise"
splits a linear layer's outputs, "rowwise" its inputs and sums the results; or one of `styles.py`. Families that
transformers has a plan for take it, the others that of `models/plans.py`. It knows nothing of processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..base.foreign import module_facts
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, raise_together
from ..models import PLANS, pattern_of

if TYPE_CHECKING:
    from torch import nn

_PLACEMENTS = {"heads": "colwise", "from_heads": "rowwise", "columns": "colwise", "rows": "rowwise"}
"""Styles of `models/plans.py` to transformers'."""

FAMILIES = ("bert", "roberta")
"""Families that train with their plan in `models/plans.py`, where transformers has none, by `model_type`."""

_DECODER_TOKENS = {
    "layers.*.input_layernorm": "sequence_parallel",
    "layers.*.self_attn": "join_tokens",
    "layers.*.self_attn.o_proj": "rowwise_split_tokens",
    "layers.*.post_attention_layernorm": "sequence_parallel",
    "layers.*.mlp": "join_tokens",
    "layers.*.mlp.down_proj": "rowwise_split_tokens",
}
_GEMMA_TOKENS = {
    **_DECODER_TOKENS,
    "layers.*.pre_feedforward_layernorm": "sequence_parallel",
    "layers.*.post_feedforward_layernorm": "sequence_parallel",
}
_BERT_TOKENS = {
    "encoder.layer.*.attention.self": "join_tokens",
    "encoder.layer.*.attention.output.dense": "rowwise_split_tokens",
    "encoder.layer.*.attention.output.LayerNorm": "sequence_parallel",
    "encoder.layer.*.intermediate": "join_tokens",
    "encoder.layer.*.output.dense": "rowwise_split_tokens",
    "encoder.layer.*.output.LayerNorm": "sequence_parallel",
}

SEQUENCE_PLANS: Mapping[str, Mapping[str, str]] = {
    "bert": _BERT_TOKENS,
    "gemma": _DECODER_TOKENS,
    "gemma2": _GEMMA_TOKENS,
    "granite": _DECODER_TOKENS,
    "llama": _DECODER_TOKENS,
    "mistral": _DECODER_TOKENS,
    "qwen2": _DECODER_TOKENS,
    "qwen3": _DECODER_TOKENS,
    "roberta": _BERT_TOKENS,
    "smollm3": _DECODER_TOKENS,
}
"""Changes of a family's plan with `sequence_parallel`, from the first layer's input to the last layer's result."""

CONTEXT_FAMILIES = frozenset(
    {"gemma", "granite", "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3"}
)
"""Decoders whose tokens meet in attention alone, by `model_type`: those that `context_parallel_size` supports."""

ADAPTER_STYLES: Mapping[str, Mapping[str, str]] = {
    "colwise": {"lora_B": "colwise"},
    "rowwise": {"lora_A": "rowwise"},
    "rowwise_split_tokens": {"lora_A": "rowwise_split_tokens", "lora_B": "sequence_parallel"},
    "colwise_gather_output": {},
    "embedding_rowwise": {},
}
"""Styles of LoRA's two matrices (`y = W x + B A x`) by that of W; the others are whole on each core."""


def tensor_plan(model: nn.Module, *, size: int, splits_tokens: bool = False) -> Mapping[str, str]:
    """Return the plan of a model's tensor parallelism: ours of its family, else transformers'."""
    config, family = model.config.get_text_config(), model.config.model_type
    prefix = model.base_model_prefix + "." if model.base_model is not model else ""
    theirs = module_facts(model).tp_plan or {}
    ours = {path: _PLACEMENTS[style] for path, style in PLANS[family].items()} if family in FAMILIES else None
    plan: Mapping[str, str] = _named(ours, prefix) if ours else theirs
    if not plan:
        families = f"{', '.join(FAMILIES)}, or a family with a tp_plan in transformers"
        raise _no_plan("tensor_parallel_size", model, f"Use one of {families}, or zero_1=True for any model.")
    _require_divisible_heads(config, type(model).__name__, size)
    if not splits_tokens:
        return plan
    if family not in SEQUENCE_PLANS:
        raise _no_plan("sequence_parallel", model, f"Remove it, or use one of {', '.join(sorted(SEQUENCE_PLANS))}.")
    return {**plan, **_named(SEQUENCE_PLANS[family], prefix)}


def expand(model: nn.Module, plan: Mapping[str, str]) -> dict[str, str]:
    """A plan for the modules and parameters that a model has, adapters included, in the order to apply it."""
    styles: dict[str, str] = {}
    unsplit: dict[str, str] = {}
    for path, module in model.named_modules():
        if hasattr(module, "base_layer"):
            style = plan.get(pattern_of(path))
            problem = _adapter_problem(module, style) if style is not None else None
            if problem is not None:
                unsplit.setdefault(problem, path)
        elif not hasattr(module, "original_module"):
            style = _style(path, plan)
            names = [f"{path}.{name}" if path else name for name, _ in module.named_parameters(recurse=False)]
            parameters = {name: plan.get(pattern_of(name), style) for name in names}
            styles.update({name: style for name, style in (*parameters.items(), (path, style)) if style is not None})
    raise_together([_unsplit_adapter(problem, path) for problem, path in unsplit.items()])
    return styles


def _style(path: str, plan: Mapping[str, str]) -> str | None:
    """Return the style of a module, or of the module that it adapts or stands in for."""
    matrix = re.fullmatch(r"(.+)\.(lora_[AB])\.[^.]+", path)
    if matrix is not None:
        return ADAPTER_STYLES.get(plan.get(pattern_of(matrix[1]), ""), {}).get(matrix[2])
    return plan.get(pattern_of(re.sub(r"\.(base_layer|original_module|modules_to_save\.[^.]+)$", "", path)))


def _adapter_problem(module: nn.Module, style: str) -> str | None:
    if module_facts(module).lora_magnitude_vector:
        return "use_dora=True, whose norms need whole weights"
    if not hasattr(module, "lora_A"):
        return f"{type(module).__module__}.{type(module).__name__}"
    return None if style in ADAPTER_STYLES else f"LoRA beside a layer of style '{style}'"


def _unsplit_adapter(problem: str, path: str) -> ConfigError:
    message = f"tensor_parallel_size cannot split the adapter of {path}: {problem}."
    hint = "Pass LoraConfig without use_dora and with other target_modules, or use zero_1 or fsdp."
    return ConfigError(message, hint=hint, option="peft_config", module=path, problem=problem)


def _named(plan: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {prefix + name: style for name, style in plan.items()}


def _no_plan(option: str, model: nn.Module, hint: str) -> ConfigError:
    family = model.config.model_type
    message = f"{option} is not supported for {type(model).__name__}: there is no plan for '{family}'."
    return ConfigError(message, hint=hint, option=option, model_type=family)


def _require_divisible_heads(config: PreTrainedConfig, name: str, size: int) -> None:
    counts = {
        field: value
        for field in ("num_attention_heads", "num_key_value_heads")
        if isinstance(value := getattr(config, field, None), int)
    }
    if all(count % size == 0 for count in counts.values()):
        return
    choices = [n for n in range(2, min(counts.values()) + 1) if all(count % n == 0 for count in counts.values())]
    heads = ", ".join(f"{field}={count}" for field, count in counts.items())
    message = f"tensor_parallel_size={size} does not divide the heads of {name} ({heads})."
    hint = f"Pass {' or '.join(map(str, choices))}." if choices else "Remove the option."
    raise ConfigError(message, hint=hint, option="tensor_parallel_size", value=size, choices=choices, heads=counts)
