"""What NxD Inference offers, on compiled decoders: configurations, models, `generate`, sampling, and measurements.

The import names are in the distribution sdk; what is real is here. `options.py` translates its configuration,
`families.py` has the table of models, `application.py` runs them. It does not know how decoders are compiled:
`modeling` does that.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
