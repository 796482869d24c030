"""`optimum.neuron.models.inference.backend.modules.generation.sampling`: parameters of sampling on the device."""

from optimum_neuron.neuronx_distributed_inference.sampling import prepare_sampling_params as prepare_sampling_params
