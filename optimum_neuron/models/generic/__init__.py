"""The generic path: any transformers causal LM, captured through its own code with a static cache."""

from .model import GenericDecoder, build
from .weights import weight_map

__all__ = ["GenericDecoder", "build", "weight_map"]
