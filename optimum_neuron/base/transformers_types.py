"""Classes of transformers for annotations, without its import: while a program runs, a name stands for any value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
else:
    PreTrainedConfig = PreTrainedModel = PreTrainedTokenizerBase = TrainingArguments = Any

__all__ = ["PreTrainedConfig", "PreTrainedModel", "PreTrainedTokenizerBase", "TrainingArguments"]
