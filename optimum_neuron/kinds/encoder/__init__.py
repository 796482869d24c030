"""Encoder-style models: encoders with or without a head, for text, images and audio.

inputs.py         which tensors a model takes, and how large they are
architectures.py  what is known of an architecture, as data; patches/, where tracing needs help
entry.py, plan.py the model as captures, one for each combination of buckets, and its signature
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
