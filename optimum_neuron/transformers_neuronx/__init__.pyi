from .adapter import (
    GPT2ForHuggingFaceSampling as GPT2ForHuggingFaceSampling,
    HuggingFaceGenerationModelAdapter as HuggingFaceGenerationModelAdapter,
)
from .checkpoint import random_split as random_split, save_pretrained_split as save_pretrained_split
from .config import (
    GQA as GQA,
    ContinuousBatchingConfig as ContinuousBatchingConfig,
    GenerationConfig as GenerationConfig,
    KVCacheQuantizationConfig as KVCacheQuantizationConfig,
    Layout as Layout,
    NeuronConfig as NeuronConfig,
    QuantizationConfig as QuantizationConfig,
    SparseAttnConfig as SparseAttnConfig,
)
from .families import (
    BloomForSampling as BloomForSampling,
    GPT2ForSampling as GPT2ForSampling,
    GPT2ForSamplingWithContextBroadcasting as GPT2ForSamplingWithContextBroadcasting,
    GPTJForSampling as GPTJForSampling,
    GPTNeoXForSampling as GPTNeoXForSampling,
    LlamaForSampling as LlamaForSampling,
    MistralForSampling as MistralForSampling,
    MixtralForSampling as MixtralForSampling,
    NeuronAutoModelForCausalLM as NeuronAutoModelForCausalLM,
    OPTForGreedySearch as OPTForGreedySearch,
    OPTForSampling as OPTForSampling,
    Qwen2ForSampling as Qwen2ForSampling,
    Qwen3ForSampling as Qwen3ForSampling,
)
from .model import NeuronModelBase as NeuronModelBase
from .speculation import (
    DefaultTokenAcceptor as DefaultTokenAcceptor,
    FusedSpeculativeDecoder as FusedSpeculativeDecoder,
    GreedyTokenAcceptor as GreedyTokenAcceptor,
    SpeculativeGenerator as SpeculativeGenerator,
)
