"""What models with images and models with audio have in common: features of an encoder replace tokens of a prompt.

`architecture.py` has what differs between architectures, `entry.py` puts features where a prompt has their tokens,
`plan.py` makes graphs of all that. The decoder is that of text generation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
