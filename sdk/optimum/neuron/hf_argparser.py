"""`optimum.neuron.hf_argparser`: the parser of command lines, transformers' own."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
