"""The Llama family: Llama 2 and 3, SmolLM2, Mistral. Fused projections, static cache, last-token logits."""

from .config import MODEL_TYPES, decoder_config, uncovered
from .model import build
from .plan import PLAN
from .weights import WEIGHT_MAP

__all__ = ["MODEL_TYPES", "PLAN", "WEIGHT_MAP", "build", "decoder_config", "uncovered"]
