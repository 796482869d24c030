"""`optimum.neuron.models.inference.whisper.modeling_whisper`: Whisper."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
