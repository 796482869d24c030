"""`optimum.neuron.modeling_seq2seq`: encoder-decoder models."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
