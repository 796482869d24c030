from .config import DecoderConfig as DecoderConfig, StateShape as StateShape
from .decoder import (
    Decoder as Decoder,
    full_precision_linear as full_precision_linear,
    one_token as one_token,
    visible_slots as visible_slots,
)
from .layers import first_slots as first_slots, write_slots as write_slots
