from .config import DecoderConfig as DecoderConfig, StateShape as StateShape
from .decoder import (
    Decoder as Decoder,
    full_precision_linear as full_precision_linear,
    one_token as one_token,
    visible_slots as visible_slots,
)
from .experts import (
    Experts as Experts,
    Mixture as Mixture,
    MixtureConfig as MixtureConfig,
    Router as Router,
    run_experts as run_experts,
)
from .latent import LatentAttention as LatentAttention, LatentConfig as LatentConfig
from .layers import AttentionView as AttentionView, first_slots as first_slots, write_slots as write_slots
