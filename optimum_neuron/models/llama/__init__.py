"""The Llama family: Llama 2 and 3, SmolLM2, Mistral. Fused projections, static cache, last-token logits."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
