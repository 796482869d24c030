"""Models that read audio and text and write text: Qwen2-Audio and Voxtral.

`architectures.py` has what is known of each, `configuration.py` has the shapes, `plan.py` the audio encoder's graph.
Prompts are those of `kinds/multimodal/`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
