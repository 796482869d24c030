"""`optimum.commands.neuron`: the commands of `optimum-cli neuron`."""

from optimum_neuron.cli import NeuronCommand

__all__ = ["NeuronCommand"]
