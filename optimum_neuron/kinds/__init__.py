"""The kinds of models, each a folder: its configuration, its graphs, how they are called, and what validation compares.

decoder/           prefill and decode graphs that share a cache
encoder/           one graph for each combination of sizes
encoder_decoder/   both: text to text, and speech to text
multimodal/        a decoder with a graph for images or audio
diffusion/         an entry point for each call of each model of a pipeline

`base.py` has their interface, `registry.py` finds the kind of a task and an architecture.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
