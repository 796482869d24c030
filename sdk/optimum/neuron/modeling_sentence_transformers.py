"""`optimum.neuron.modeling_sentence_transformers`: sentence embeddings."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
