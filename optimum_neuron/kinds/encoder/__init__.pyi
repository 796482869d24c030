from .architectures import find_architecture as find_architecture
from .configuration import (
    AXES as AXES,
    NeuronEncoderConfig as NeuronEncoderConfig,
    Sizes as Sizes,
)
from .entry import call_options as call_options, on_fakes as on_fakes, with_attentions as with_attentions
