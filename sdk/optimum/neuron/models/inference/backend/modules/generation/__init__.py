"""`optimum.neuron.models.inference.backend.modules.generation`: how decoders generate."""
