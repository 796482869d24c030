"""The simulated device at run time: cores and their claims, HBM accounting, execution.

    from optimum_neuron.runtime import held_cores

Names are imported when they are first used. The runtime knows no simulator: see `hooks.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
