"""`optimum.neuron.models.inference.backend.modules`: parts of decoders."""
