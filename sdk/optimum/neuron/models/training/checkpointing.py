"""`optimum.neuron.models.training.checkpointing`: checkpoints in shards."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
