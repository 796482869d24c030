"""`optimum.neuron.models.inference.bert`: BERT by its classes in transformers."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
