from . import plan as plan
from .architectures import IMPLEMENTED as IMPLEMENTED, find_architecture as find_architecture
from .configuration import (
    NeuronAudioTextConfig as NeuronAudioTextConfig,
)
