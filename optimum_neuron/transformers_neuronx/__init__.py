"""What `transformers_neuronx` offers, on compiled decoders: models that sample, and their configurations.

The import names are in the distribution sdk; what is real is here. `options.py` translates its configuration,
`positions.py` runs a decoder at positions that the caller names, `model.py` has the classes. It does not know how
decoders are compiled: `modeling` does that.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
