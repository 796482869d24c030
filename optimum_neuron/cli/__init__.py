"""The commands `optimum-cli export neuron` and `optimum-cli neuron ...`.

optimum finds them through `optimum/commands/register/register_optimum_neuron.py`. Every module here is
light at import: torch, transformers and our own compiler are imported when a command runs, so that help
answers at once and a broken installation can still be examined with `optimum-cli neuron doctor`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
