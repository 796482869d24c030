"""Which parameters tensor parallelism splits, as data: names of modules, with `*` for layer numbers, to styles.

A style is one of transformers' (`transformers.distributed.tensor_parallel`), which are DTensor placements: "colwise"
splits a linear layer's outputs, "rowwise" its inputs and sums the results. Families that transformers has a plan for
take it; those below have none there. It knows nothing of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import Choice
from ..errors import ConfigError, refusal

_BERT_LAYERS = {
    "encoder.layer.*.attention.self.query": "colwise",
    "encoder.layer.*.attention.self.key": "colwise",
    "encoder.layer.*.attention.self.value": "colwise",
    "encoder.layer.*.attention.output.dense": "rowwise",
    "encoder.layer.*.intermediate.dense": "colwise",
    "encoder.layer.*.output.dense": "rowwise",
}

FAMILY_PLANS: Mapping[str, Mapping[str, str]] = {
    "bert": _BERT_LAYERS,
    "roberta": _BERT_LAYERS,
}
"""By `model_type`; names are those of the base model."""


def tensor_plan(model: Any, *, size: int) -> Choice[Mapping[str, str]]:
    """Choose what tensor parallelism splits in a model.

    Args:
        model: one of transformers.
        size: `tensor_parallel_size`.

    Raises:
        ConfigError: no plan is known for the model, or its heads cannot be split so; with the sizes that can.
    """
    config = model.config.get_text_config()
    family = FAMILY_PLANS.get(model.config.model_type)
    theirs = getattr(model, "tp_plan", None) or {}
    plan: Choice[Mapping[str, str]]
    if family is not None:
        prefix = model.base_model_prefix + "." if model.base_model is not model else ""
        plan = Choice(
            value={prefix + name: style for name, style in family.items()},
            reason=f"plan of the family {model.config.model_type}",
        )
    elif theirs:
        plan = Choice(value=theirs, reason=f"transformers' tp_plan of {type(model).__name__}")
    else:
        raise ConfigError(
            refusal(
                asked=f"tensor_parallel_size={size} of {type(model).__name__}",
                found=f"no plan for the architecture '{model.config.model_type}', here or in transformers",
                why="a plan says which layers are split by columns and which by rows",
                do=f"leave tensor_parallel_size out (zero_1=True splits optimizer states of any model), or take one "
                f"of {', '.join(sorted(FAMILY_PLANS))} or a family with a tp_plan in transformers",
            )
        )
    _require_divisible_heads(config, type(model).__name__, size)
    return plan


def _require_divisible_heads(config: Any, name: str, size: int) -> None:
    counts = {
        field: value
        for field in ("num_attention_heads", "num_key_value_heads")
        if isinstance(value := getattr(config, field, None), int)
    }
    if all(count % size == 0 for count in counts.values()):
        return
    fitting = [n for n in range(2, min(counts.values()) + 1) if all(count % n == 0 for count in counts.values())]
    raise ConfigError(
        refusal(
            asked=f"tensor_parallel_size={size} of {name}",
            found=", ".join(f"{field}={count}" for field, count in counts.items()),
            why="each core computes whole attention heads, and as many as the others",
            do=f"pass tensor_parallel_size={' or '.join(map(str, fitting))}"
            if fitting
            else "leave tensor_parallel_size out: the heads divide by 1 only",
        )
    )
