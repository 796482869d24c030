from . import plan as plan
from .architectures import (
    IMPLEMENTED as IMPLEMENTED,
    AudioArchitecture as AudioArchitecture,
    find_architecture as find_architecture,
)
from .configuration import (
    NeuronAudioTextConfig as NeuronAudioTextConfig,
    ResolvedAudioTextConfig as ResolvedAudioTextConfig,
)
