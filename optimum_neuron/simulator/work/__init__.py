"""Graph to work: the work of a run on a core, counted from shapes alone.

    record.py      Work, Step, GraphWork: the result, whatever it was counted from
    graph.py       compiled programs, torch.fx modules
    sizes.py reading.py  sizes of a decoder, read off its configuration
    roles.py       what matrices are for, by their names, in configurations and in graphs
    decoder.py     prefill and decode of a decoder under tensor parallelism, from its sizes
    published.py published_mixers.py  what published stacks change in a compiled decoder's graph
    trained.py     what a configuration says of a model's training; operations and activations of a step

One call of an operator is counted by `compiler/work.py`, in the tiles of `compiler/tiles.py`, and nowhere else. Nothing
here knows a measured constant. A test compares the counts from compiled graphs and from configurations.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
