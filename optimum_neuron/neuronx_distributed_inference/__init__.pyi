from . import (
    accuracy as accuracy,
    autobucketing as autobucketing,
    benchmark as benchmark,
    demo as demo,
    families as families,
    family_table as family_table,
    logits as logits,
    model_wrapper as model_wrapper,
    program_flags as program_flags,
    ranks as ranks,
    sampling as sampling,
    state_dicts as state_dicts,
    testing as testing,
)
from .adapter import HuggingFaceGenerationAdapter as HuggingFaceGenerationAdapter
from .application import NeuronBaseForCausalLM as NeuronBaseForCausalLM, is_compiled as is_compiled
from .checks import check_values as check_values
from .config import (
    LONG_CONTEXT_SCRATCHPAD_PAGE_SIZE as LONG_CONTEXT_SCRATCHPAD_PAGE_SIZE,
    MoENeuronConfig as MoENeuronConfig,
    MultimodalVisionNeuronConfig as MultimodalVisionNeuronConfig,
    NeuronConfig as NeuronConfig,
    get_platform_lnc as get_platform_lnc,
    to_dict as to_dict,
)
from .inference_config import (
    ImageToTextInferenceConfig as ImageToTextInferenceConfig,
    InferenceConfig as InferenceConfig,
    load_pretrained_config as load_pretrained_config,
)
from .keywords import NAMES as NAMES, OF_EXPERTS as OF_EXPERTS
from .parts import (
    ChunkedPrefillConfig as ChunkedPrefillConfig,
    FusedSpecNeuronConfig as FusedSpecNeuronConfig,
    HybridShardingConfig as HybridShardingConfig,
    LoraServingConfig as LoraServingConfig,
    OnDeviceSamplingConfig as OnDeviceSamplingConfig,
    RouterConfig as RouterConfig,
    TensorCaptureConfig as TensorCaptureConfig,
    to_torch_dtype as to_torch_dtype,
)
