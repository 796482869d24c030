"""Calls a compiled program: the one place that pads, splits, chooses buckets, and keeps sequences.

A program has entry points with roles and sizes; a signature says how their inputs may be padded. Everything above calls
the engine: models behind transformers' interface, validation, profiles. It knows neither transformers nor checkpoints.

    signature.py        inputs, outputs, states, by role; written into the NEFF
    packing.py          padded batches to packed rows, buckets   rows.py      padding and splitting of rows
    forward.py          roles that keep nothing                  sequences.py state of each sequence
    decoder.py          prefill, score, extend, decode
    paged.py            the same for a cache that is a pool of blocks
    encoder_decoder.py  encode, first and next token             images.py    features in prompts
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
