"""Batches that a model cannot use: errors with step, column, and value instead of an index error deep in a kernel.

Only facts that the model states are checked: its embeddings, its configuration, its task. It does not depend on
trainers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import torch

from ..base.foreign import module_facts
from ..base.labels import IGNORED
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, ModelError, raise_together

if TYPE_CHECKING:
    from torch import nn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The range of a model's inputs; None: unknown."""

    num_tokens: int | None = None
    """Rows of the input embedding."""
    num_positions: int | None = None
    """Tokens of the longest sequence."""
    num_labels: int | None = None
    """Classes of its task."""

    @classmethod
    def of(cls, model: nn.Module) -> Limits:
        """Read the limits of a model of transformers, adapters included."""
        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        config = module_facts(model).config
        if config is None:
            return cls()
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        reads_text = module_facts(model).main_input_name == "input_ids"
        return cls(
            num_tokens=_num_tokens(model) if reads_text else None,
            num_positions=_num_positions(model, text) if reads_text else None,
            num_labels=_num_labels(model, config, text),
        )


def _num_tokens(model: nn.Module) -> int | None:
    try:
        embedding = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return module_facts(embedding).num_embeddings


def _num_positions(model: nn.Module, config: PreTrainedConfig) -> int | None:
    most = facts_of(config).max_position_embeddings
    if not isinstance(most, int) or most < 1:
        return None
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from behind the padding token.
        if name.endswith("position_embeddings") and module_facts(module).padding_idx is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    return most


def _num_labels(model: nn.Module, config: PreTrainedConfig, text: PreTrainedConfig) -> int | None:
    from transformers.models.auto import modeling_auto as auto

    def is_for(*tasks: str) -> bool:
        classes = (getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES").values() for task in tasks)
        return any(type(model).__name__ in names for names in classes)

    if is_for("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM"):
        return facts_of(text).vocab_size
    classifies = is_for("SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "IMAGE_CLASSIFICATION")
    single = facts_of(config).problem_type in (None, "single_label_classification")
    return config.num_labels if classifies and single and config.num_labels > 1 else None


def require_usable(batch: Mapping[str, Any], limits: Limits, *, where: str) -> None:
    """Reject a batch of, for example, "training step 3" that the model cannot use; all its problems are listed."""
    tokens = batch.get("input_ids")
    problems = [
        _range_problem("input_ids", tokens, limits.num_tokens, "tokens", where),
        _range_problem("labels", batch.get("labels"), limits.num_labels, "labels", where),
    ]
    if isinstance(tokens, torch.Tensor) and tokens.ndim > 1 and "position_ids" not in batch:
        length, most = tokens.shape[-1], limits.num_positions
        if most is not None and length > most:
            message = f"Sequences in {where} have {length} tokens, but the model has {most} positions."
            hint = f"Truncate to max_length={most}, or raise max_position_embeddings of its configuration."
            facts: dict[str, Any] = {"where": where, "num_tokens": length, "num_positions": most}
            problems.append(ModelError(message, hint=hint, column="input_ids", **facts))
    raise_together([problem for problem in problems if problem is not None])


def _range_problem(name: str, values: object, count: int | None, kind: str, where: str) -> ModelError | None:
    if count is None or not isinstance(values, torch.Tensor) or values.is_floating_point() or values.numel() == 0:
        return None
    least, most = (int(value) for value in values.aminmax())
    if least >= 0 and most < count:
        return None
    allowed = (values >= 0) & (values < count)
    if name == "labels":
        allowed |= values == IGNORED
    wrong = (~allowed).nonzero()
    if len(wrong) == 0:
        return None
    place = wrong[0].tolist()
    value, extra = int(values[tuple(place)]), f", or {IGNORED} to ignore a token" if name == "labels" else ""
    where_first = f"{len(wrong)} values out of range, first {value} at {place}"
    message = f"{name} of {where} has {where_first}: the model has {count} {kind}."
    hint = f"Use 0 to {count - 1}{extra}; check that the tokenizer belongs to the model."
    return ModelError(message, hint=hint, column=name, where=where, value=value, place=place, count=count)


def main_input(model: nn.Module) -> str:
    """Return the name of a model's required input."""
    return module_facts(model).main_input_name or "input_ids"


def require_columns(columns: Iterable[str], accepted: Iterable[str], main_input: str, *, purpose: str) -> None:
    """Reject a data set, such as "training", without the model's main input."""
    columns = list(columns)
    if main_input in columns or "inputs_embeds" in columns:
        return
    unused = [name for name in columns if name not in set(accepted)]
    extra = f"; the model does not use {', '.join(unused)}" if unused else ""
    message = f"The {purpose} data set has no column '{main_input}', the model's main input{extra}."
    hint = "Tokenize first (dataset.map), or pass a data_collator that makes it and remove_unused_columns=False."
    raise ConfigError(message, hint=hint, column=main_input, columns=columns, unused=unused)


def require_rows(dataset: object, *, purpose: str) -> None:
    """Reject a data set, such as "training", without rows, if its length is known."""
    if isinstance(dataset, Sized) and len(dataset) == 0:
        hint = "Check how it is read and filtered: a path, a split, a length."
        raise ConfigError(f"The {purpose} data set is empty.", hint=hint, dataset=purpose)


def require_loss(batch: Mapping[str, Any], label_names: Sequence[str], *, where: str) -> None:
    """Reject a batch without labels (one of the columns is enough), for a model that computes its loss from them."""
    if label_names and not any(name in batch for name in label_names):
        message = f"The batch of {where} has no column {' or '.join(label_names)} to compute the loss from."
        hint = "Add the column to the data set, or pass a data_collator that makes it, or compute_loss_func."
        raise ConfigError(message, hint=hint, columns=list(batch), label_names=list(label_names))
