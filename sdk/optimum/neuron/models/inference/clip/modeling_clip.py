"""`optimum.neuron.models.inference.clip.modeling_clip`: CLIP, by the classes of its tasks."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
