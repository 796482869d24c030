"""A checkpoint whose configuration ties its head to the embeddings, although the files have a head of its own."""

from __future__ import annotations

import collections
import logging
from pathlib import Path
from typing import Any

from ..weights import Checkpoint

logger = logging.getLogger(__name__)


def untie_own_head(config: Any, folder: Path) -> None:
    """Set `tie_word_embeddings` to False if the files have two different matrices, as transformers does."""
    if not getattr(config, "tie_word_embeddings", False) or not any(folder.glob("*.safetensors")):
        return
    checkpoint = Checkpoint.open(folder)
    shapes = collections.Counter(spec.shape for spec in checkpoint.specs.values() if len(spec.shape) > 1)
    num_tokens = getattr(config.get_text_config(), "vocab_size", 0)
    if not any(count > 1 and max(shape) >= num_tokens for shape, count in shapes.items()):
        return  # no two tensors can be a head and embeddings; only importing the model's file tells their names
    import torch
    import transformers

    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    tied = (getattr(getattr(transformers, names[0]), "_tied_weights_keys", None) or {}) if names else {}
    for target, source in tied.items() if isinstance(tied, dict) else ():
        if not {target, source} <= checkpoint.specs.keys():
            continue
        head, embeddings = checkpoint.join([target])[0], checkpoint.join([source])[0]
        if not torch.equal(head, embeddings):
            logger.warning(
                "%s has tie_word_embeddings=true, but %s and %s differ in its files; both are used.",
                *(folder, target, source),
            )
            config.tie_word_embeddings = False
