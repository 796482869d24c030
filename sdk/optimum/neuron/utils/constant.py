"""`optimum.neuron.utils.constant`: names of files and folders of an exported model."""

from optimum_neuron.configuration import NEFF_FILE as NEURON_FILE_NAME

ENCODER_NAME = "encoder"
DECODER_NAME = "decoder"

__all__ = ["DECODER_NAME", "ENCODER_NAME", "NEURON_FILE_NAME"]
