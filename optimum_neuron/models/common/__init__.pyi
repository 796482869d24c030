from .config import DecoderConfig as DecoderConfig
from .decoder import (
    Decoder as Decoder,
    full_precision_linear as full_precision_linear,
    one_token as one_token,
    visible_slots as visible_slots,
)
from .layers import first_slots as first_slots, write_slots as write_slots
from .states import (
    LayerState as LayerState,
    StateTensor as StateTensor,
    convolution_state as convolution_state,
    key_value_state as key_value_state,
    recurrent_state as recurrent_state,
)
