"""One module for each kind of file that packages carry checkpoints and data in.

Each has a function `convert(source, destination)`: it reads the files in the folder `source`, which it may use up, and
makes the folder `destination`. They run in a separate process, see `optimum_neuron.checkpoints.convert`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
