"""Kinds of served models beside decoders: each has a module with what it computes and the answers of its endpoints.

choice.py      the kind of a model, by the task of its export
base.py        a queue, a thread, metrics            batcher.py     batches of several requests
embedding.py   /v1/embeddings                        scoring.py     /score, /rerank
speech.py      /v1/audio/...                         images.py      /v1/images/generations
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
