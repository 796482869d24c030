from . import plan as plan
from .architectures import Architecture as Architecture, find_architecture as find_architecture
from .configuration import (
    NeuronImageTextConfig as NeuronImageTextConfig,
)
from .plan import ENCODE as ENCODE
