"""The generic path: any transformers causal LM, captured through its own code with a static cache."""

from .model import GenericDecoder, build
from .probe import probe_states
from .weights import weight_map

__all__ = ["GenericDecoder", "build", "probe_states", "weight_map"]
