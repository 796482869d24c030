from .adapter_layers import with_adapters as with_adapters
from .adapters import STACK_NAMES as STACK_NAMES, AdapterPlan as AdapterPlan, RowAdapters as RowAdapters
from .common import (
    SCALE_NAMES as SCALE_NAMES,
    SLOTS as SLOTS,
    Decoder as Decoder,
    LayerState as LayerState,
    Prompt as Prompt,
    as_cached as as_cached,
    counts_tokens as counts_tokens,
    forgetting as forgetting,
    key_value_state as key_value_state,
    without_weights as without_weights,
)
from .eagle import (
    EAGLE_WEIGHT_MAP as EAGLE_WEIGHT_MAP,
    EagleEntry as EagleEntry,
    EagleNetwork as EagleNetwork,
    eagle_gap as eagle_gap,
    eagle_sizes as eagle_sizes,
)
from .first_eagle import (
    FIRST_EAGLE_WEIGHT_MAP as FIRST_EAGLE_WEIGHT_MAP,
    FirstEagleNetwork as FirstEagleNetwork,
)
from .heads import (
    require_group_size as require_group_size,
)
from .parallel import split_module as split_module
from .plans import PLANS as PLANS, Plan as Plan, diffusion_plan as diffusion_plan, pattern_of as pattern_of
from .quantize import quantize_decoder as quantize_decoder
from .reach import Reach as Reach, reach_of as reach_of
from .registry import (
    GENERIC as GENERIC,
    LAYER_STATES as LAYER_STATES,
    Family as Family,
    build_decoder as build_decoder,
    cast_parameters as cast_parameters,
    cast_weights as cast_weights,
    choose_family as choose_family,
    eagle_layers as eagle_layers,
    families as families,
    family_decoder as family_decoder,
    generic_decoder as generic_decoder,
    persistent_buffers as persistent_buffers,
    require_family as require_family,
    with_hidden_states as with_hidden_states,
)
