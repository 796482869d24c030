from . import plan as plan
from .architectures import (
    Architecture as Architecture,
    default_images as default_images,
    find_architecture as find_architecture,
    implemented as implemented,
)
from .configuration import (
    NeuronImageTextConfig as NeuronImageTextConfig,
    ResolvedImageTextConfig as ResolvedImageTextConfig,
)
from .plan import ENCODE as ENCODE
