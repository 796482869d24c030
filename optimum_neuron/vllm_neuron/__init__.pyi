from .adapters import LoRARequest as LoRARequest
from .arg_parser import FlexibleArgumentParser as FlexibleArgumentParser
from .command import main as main
from .engine import (
    AsyncLLMEngine as AsyncLLMEngine,
    LLMEngine as LLMEngine,
    build_async_engine_client_from_engine_args as build_async_engine_client_from_engine_args,
)
from .engine_args import AsyncEngineArgs as AsyncEngineArgs, EngineArgs as EngineArgs
from .inputs import (
    EmbedsPrompt as EmbedsPrompt,
    PromptType as PromptType,
    TextPrompt as TextPrompt,
    TokensPrompt as TokensPrompt,
)
from .llm import LLM as LLM
from .outputs import (
    BeamSearchOutput as BeamSearchOutput,
    BeamSearchSequence as BeamSearchSequence,
    ClassificationOutput as ClassificationOutput,
    ClassificationRequestOutput as ClassificationRequestOutput,
    CompletionOutput as CompletionOutput,
    EmbeddingOutput as EmbeddingOutput,
    EmbeddingRequestOutput as EmbeddingRequestOutput,
    Logprob as Logprob,
    PoolingOutput as PoolingOutput,
    PoolingRequestOutput as PoolingRequestOutput,
    RequestOutput as RequestOutput,
    ScoringOutput as ScoringOutput,
    ScoringRequestOutput as ScoringRequestOutput,
)
from .pooling import PoolingParams as PoolingParams
from .sampling_params import (
    BeamSearchParams as BeamSearchParams,
    GuidedDecodingParams as GuidedDecodingParams,
    RequestOutputKind as RequestOutputKind,
    SamplingParams as SamplingParams,
    StructuredOutputsParams as StructuredOutputsParams,
)
from .server import api_server as api_server
from .utilities import (
    AnyTokenizer as AnyTokenizer,
    Counter as Counter,
    cleanup_dist_env_and_memory as cleanup_dist_env_and_memory,
    current_platform as current_platform,
    get_adapter_absolute_path as get_adapter_absolute_path,
    get_ip as get_ip,
    get_lora_tokenizer as get_lora_tokenizer,
    get_open_port as get_open_port,
    get_tokenizer as get_tokenizer,
    init_logger as init_logger,
    merge_async_iterators as merge_async_iterators,
    random_uuid as random_uuid,
)
from .version import VLLM_VERSION as VLLM_VERSION, VLLM_VERSION_TUPLE as VLLM_VERSION_TUPLE
