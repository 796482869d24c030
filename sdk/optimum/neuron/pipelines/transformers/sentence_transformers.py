"""`optimum.neuron.pipelines.transformers.sentence_transformers`: pipelines of sentence-transformers."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
