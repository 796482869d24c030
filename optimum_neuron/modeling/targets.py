"""Targets of encoder-decoders as training has them: `labels` become what a decoder reads, and a loss.

Both are as in transformers, where architectures differ: T5 begins with its padding token, mBART with the language that
labels end with.

Shape legend: R rows, T target tokens, V vocabulary.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import torch

from ..errors import ShapeError, refusal
from ..exporters.tasks import architectures_of
from ..labels import IGNORED


def check_labels(labels_RT: torch.Tensor, vocabulary: int) -> None:
    """Refuse labels [R, T] that are no tokens.

    Raises:
        ShapeError: there are no labels, or one is no token.
    """
    if labels_RT.ndim != 2 or labels_RT.numel() == 0:
        raise ShapeError(
            refusal(
                asked=f"labels of shape {list(labels_RT.shape)}",
                found="no batch of tokens",
                why="labels are [rows, tokens], at least one of each",
                do="pass the tokens of the targets",
            )
        )
    wrong = labels_RT[(labels_RT != IGNORED) & ((labels_RT < 0) | (labels_RT >= vocabulary))]
    if wrong.numel():
        raise ShapeError(
            refusal(
                asked=f"the label {int(wrong[0])}",
                found=f"the vocabulary has 0 to {vocabulary - 1}",
                why=f"a label is a token, or {IGNORED} where nothing is compared",
                do="make labels with the tokenizer of this checkpoint",
            )
        )


def shifted_labels(labels_RT: torch.Tensor, config: Any, task: str) -> torch.Tensor:
    """What the decoder of an architecture reads to predict labels [R, T]."""
    import transformers

    name = architectures_of(task)[config.model_type][0]
    original = getattr(transformers, name)
    shift = getattr(inspect.getmodule(original), "shift_tokens_right", None)
    if shift is None:  # T5 and its kin have a method, which reads nothing but the configuration
        return original._shift_right(SimpleNamespace(config=config), labels_RT)
    known = {"pad_token_id": config.pad_token_id, "decoder_start_token_id": config.decoder_start_token_id}
    return shift(
        labels_RT, **{key: value for key, value in known.items() if key in inspect.signature(shift).parameters}
    )


def label_loss(logits_RTV: torch.Tensor, labels_RT: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the labels.

    Raises:
        ShapeError: there are not as many labels as targets.
    """
    if logits_RTV.shape[:2] != labels_RT.shape:
        raise ShapeError(
            refusal(
                asked=f"labels of shape {list(labels_RT.shape)} with decoder_input_ids of {list(logits_RTV.shape[:2])}",
                found="two shapes",
                why="each token of a target has one label",
                do="leave decoder_input_ids out: they are made of the labels",
            )
        )
    return torch.nn.functional.cross_entropy(
        logits_RTV.flatten(0, 1).float(), labels_RT.flatten(), ignore_index=IGNORED
    )
