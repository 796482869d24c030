from .alibi import slopes_by_halves as slopes_by_halves, slopes_by_order as slopes_by_order
from .attention import Attention as Attention, AttentionView as AttentionView
from .attention_kernel import choose_attention as choose_attention, unsupported as unsupported
from .blocks import Blocks as Blocks, place_tokens as place_tokens
from .cache_dtypes import (
    CACHE_NAMES as CACHE_NAMES,
    SCALE_NAMES as SCALE_NAMES,
    as_cached as as_cached,
    cache_choice as cache_choice,
    stored_as as stored_as,
    take_scales as take_scales,
)
from .config import (
    DecoderConfig as DecoderConfig,
    LayerKind as LayerKind,
    Norm as Norm,
    Rotary as Rotary,
)
from .convolution import (
    ShortConvolution as ShortConvolution,
    real_tokens as real_tokens,
    take_window as take_window,
)
from .decoder import (
    Decoder as Decoder,
    Head as Head,
    full_precision_linear as full_precision_linear,
    one_token as one_token,
)
from .delta_net import DeltaConfig as DeltaConfig, GatedDeltaNet as GatedDeltaNet
from .delta_rule import gated_delta_rule as gated_delta_rule
from .empty import without_weights as without_weights
from .experts import Experts as Experts, Mixture as Mixture, MixtureConfig as MixtureConfig, run_experts as run_experts
from .kept import forgetting as forgetting
from .latent import LatentAttention as LatentAttention, LatentConfig as LatentConfig
from .layers import (
    GatedMLP as GatedMLP,
    TokenModule as TokenModule,
    TransposedLinear as TransposedLinear,
    make_linear as make_linear,
    make_norm as make_norm,
    rotary_angles as rotary_angles,
)
from .prompt import Prompt as Prompt, axis_positions as axis_positions
from .quantized import QuantizedEmbedding as QuantizedEmbedding, QuantizedLinear as QuantizedLinear
from .reading import (
    HEAD_NORMS as HEAD_NORMS,
    MIXTURE_PLAN as MIXTURE_PLAN,
    MIXTURE_WEIGHT_MAP as MIXTURE_WEIGHT_MAP,
    PLAN as PLAN,
    WEIGHT_MAP as WEIGHT_MAP,
    activation_gap as activation_gap,
    mixture_uncovered as mixture_uncovered,
    plain_rotary as plain_rotary,
    read_decoder as read_decoder,
    read_rotary as read_rotary,
    read_sizes as read_sizes,
    read_windows as read_windows,
    rotary_gap as rotary_gap,
    shared_weight_map as shared_weight_map,
    uncovered as uncovered,
)
from .rings import Ring as Ring
from .sinks import SinkAttention as SinkAttention
from .state_rows import keep_state as keep_state, state_of_rows as state_of_rows
from .states import (
    POSITION_OFFSET as POSITION_OFFSET,
    SLOTS as SLOTS,
    LayerState as LayerState,
    convolution_state as convolution_state,
    counts_tokens as counts_tokens,
    key_value_state as key_value_state,
    recurrent_state as recurrent_state,
    ring_choice as ring_choice,
    seen_within as seen_within,
    visible_slots as visible_slots,
)
