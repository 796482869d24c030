"""The Llama decoder is the shared decoder as it is; other families differ from it by arguments."""

from __future__ import annotations

from typing import Any

from ..common import Decoder
from .config import decoder_config


def build(config: Any) -> Decoder:
    """Return the decoder of a transformers configuration, with uninitialized parameters."""
    return Decoder(decoder_config(config))
