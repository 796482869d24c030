"""Models that read images and text and write text, such as SmolVLM and LLaVA.

`architectures/` has what is known of each, `entry.py` puts the features of images where a prompt has image tokens,
`configuration.py` has the shapes, `plan.py` makes graphs of all that. The decoder is that of text generation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
