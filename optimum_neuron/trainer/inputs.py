"""Batches that a model cannot use, told with their step, column and value before an index error deep in a kernel.

Only facts that the model states are checked: its embeddings, its configuration, its task. It knows nothing of trainers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sized
from typing import Any

import torch

from ..errors import ConfigError, ModelError, refusal
from ..labels import IGNORED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one model can be given; None: it does not say."""

    num_tokens: int | None = None
    """Rows of the input embedding."""
    num_positions: int | None = None
    """Longest sequence."""
    num_labels: int | None = None
    """Classes of its task."""

    @classmethod
    def of(cls, model: Any) -> Limits:
        """Read the limits of a model of transformers, adapters included."""
        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        config = getattr(model, "config", None)
        if config is None:
            return cls()
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        reads_text = getattr(model, "main_input_name", None) == "input_ids"
        return cls(
            num_tokens=_num_tokens(model) if reads_text else None,
            num_positions=_num_positions(model, text) if reads_text else None,
            num_labels=_num_labels(model, config, text),
        )


def _num_tokens(model: Any) -> int | None:
    try:
        embedding = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(embedding, "num_embeddings", None)


def _num_positions(model: Any, config: Any) -> int | None:
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return None
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from behind the padding token.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    return most


def _num_labels(model: Any, config: Any, text: Any) -> int | None:
    from transformers.models.auto import modeling_auto as auto

    def is_one_of(*mappings: str) -> bool:
        return any(type(model).__name__ in getattr(auto, mapping).values() for mapping in mappings)

    if is_one_of(
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    ):
        return getattr(text, "vocab_size", None)
    classifies = is_one_of(
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    )
    single = getattr(config, "problem_type", None) in (None, "single_label_classification")
    return config.num_labels if classifies and single and config.num_labels > 1 else None


def require_usable(batch: Mapping[str, Any], limits: Limits, *, where: str) -> None:
    """Refuse a batch that the model cannot use; all its problems are told.

    Args:
        batch: what the model is given.
        limits: of the model.
        where: such as "training step 3".

    Raises:
        ModelError: token ids or labels that the model has not, or rows that are too long for it.
    """
    tokens = batch.get("input_ids")
    problems = [
        _range_problem("input_ids", tokens, limits.num_tokens, "tokens", where),
        _range_problem("labels", batch.get("labels"), limits.num_labels, "labels", where),
    ]
    if isinstance(tokens, torch.Tensor) and tokens.ndim > 1 and "position_ids" not in batch:
        most = limits.num_positions
        if most is not None and tokens.shape[-1] > most:
            problems.append(
                refusal(
                    asked=f"rows of {tokens.shape[-1]} tokens in {where}",
                    found=f"a model with {most} positions",
                    why="it has learned no others",
                    do=f"truncate to max_length={most}, or raise max_position_embeddings of its configuration",
                )
            )
    told = [problem for problem in problems if problem is not None]
    if told:
        raise ModelError("\n".join(told), details={"where": where})


def _range_problem(name: str, values: Any, count: int | None, what: str, where: str) -> str | None:
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
    row = wrong[0].tolist()
    extra = f", or {IGNORED} where there is none" if name == "labels" else ""
    return refusal(
        asked=f"{name} of {where}",
        found=f"{len(wrong)} values that are no {what}, first {int(values[tuple(row)])} at {row}",
        why=f"the model has {count} {what}",
        do=f"use 0 to {count - 1}{extra}; check that tokenizer and configuration belong to the model",
    )


def require_columns(columns: Iterable[str], accepted: Iterable[str], main_input: str, *, what: str) -> None:
    """Refuse a data set without the model's main input.

    Args:
        columns: of the data set.
        accepted: arguments of the model.
        main_input: the one that it cannot do without.
        what: such as "training".

    Raises:
        ConfigError: the column is missing.
    """
    columns = list(columns)
    if main_input in columns or "inputs_embeds" in columns:
        return
    unused = [name for name in columns if name not in set(accepted)]
    raise ConfigError(
        refusal(
            asked=f"the {what} data set, with columns {', '.join(columns) or 'none'}",
            found=f"no column '{main_input}'"
            + (f"; {', '.join(unused)} would be left out, because the model does not take them" if unused else ""),
            why=f"the model's main input is '{main_input}'",
            do="tokenize first (dataset.map), or pass a data_collator that makes it and remove_unused_columns=False",
        )
    )


def require_rows(dataset: Any, *, what: str) -> None:
    """Refuse a data set without rows, where it tells its length.

    Args:
        dataset: of the user.
        what: such as "training".

    Raises:
        ConfigError: it is empty.
    """
    if not isinstance(dataset, Sized) or len(dataset) > 0:
        return
    raise ConfigError(
        refusal(
            asked=f"the {what} data set",
            found="no rows",
            why="a step takes a batch of them",
            do="look at what reads and filters it: a path, a split, a length",
        )
    )
