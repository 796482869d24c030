"""Counts of configurations that are kept on disk, so that a second process estimates without torch and transformers.

    from optimum_neuron.simulator.counts import count_file

Names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
