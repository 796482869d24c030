"""Models that read images and text and write text, such as SmolVLM and LLaVA.

`architectures/` has what is known of each, `configuration.py` has the shapes, `plan.py` the vision encoder's graphs.
Prompts are those of `kinds/multimodal/`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
