"""`optimum.neuron.pipelines.transformers.base`: pipelines over compiled models."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
