from . import plan as plan
from .architectures import default_images as default_images, find_architecture as find_architecture
from .configuration import (
    NeuronImageTextConfig as NeuronImageTextConfig,
    ResolvedImageTextConfig as ResolvedImageTextConfig,
)
from .entry import ENCODE as ENCODE
