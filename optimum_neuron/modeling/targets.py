"""Labels of encoder-decoders: shift them to decoder inputs, and compute their loss.

Both follow transformers, where architectures differ: T5 starts with its padding token, mBART with the language token
at the end of the labels.

Shape legend: R batch, T target tokens, V vocabulary.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import torch

from ..base.labels import IGNORED
from ..base.transformers_types import PreTrainedConfig
from ..errors import ShapeError
from ..sources import architectures_of


def check_labels(labels_RT: torch.Tensor, vocabulary: int) -> None:
    """Check labels [R, T]."""
    shape = list(labels_RT.shape)
    if labels_RT.ndim != 2 or labels_RT.numel() == 0:
        message = f"labels has shape {shape}, but labels are [batch, tokens], at least one of each."
        raise ShapeError(message, hint="Pass the token IDs of the targets.", input="labels", shape=shape)
    wrong = labels_RT[(labels_RT != IGNORED) & ((labels_RT < 0) | (labels_RT >= vocabulary))].tolist()
    if wrong:
        message = f"Label {wrong[0]} is not in the vocabulary (0 to {vocabulary - 1}, or {IGNORED} to skip a token)."
        raise ShapeError(message, hint="Use the tokenizer of this checkpoint.", input="labels", token=wrong[0])


def shifted_labels(labels_RT: torch.Tensor, config: PreTrainedConfig, task: str) -> torch.Tensor:
    """Return the decoder inputs that predict labels [R, T]."""
    import transformers

    name = architectures_of(task)[config.model_type][0]
    original = getattr(transformers, name)
    shift = getattr(inspect.getmodule(original), "shift_tokens_right", None)
    if shift is None:  # T5 and similar models have a method, which reads the configuration only
        return original._shift_right(SimpleNamespace(config=config), labels_RT)
    known = {"pad_token_id": config.pad_token_id, "decoder_start_token_id": config.decoder_start_token_id}
    return shift(
        labels_RT, **{key: value for key, value in known.items() if key in inspect.signature(shift).parameters}
    )


def label_loss(logits_RTV: torch.Tensor, labels_RT: torch.Tensor, *, of: str, hint: str) -> torch.Tensor:
    """Return the mean cross-entropy of the labels of an input."""
    shape, expected = list(labels_RT.shape), list(logits_RTV.shape[:2])
    if shape != expected:
        message = f"labels has shape {shape}, but {of} has {expected}."
        raise ShapeError(message, hint=hint, input="labels", shape=shape)
    return torch.nn.functional.cross_entropy(
        logits_RTV.flatten(0, 1).float(), labels_RT.flatten(), ignore_index=IGNORED
    )
