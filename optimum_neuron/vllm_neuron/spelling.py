"""What a user of vLLM calls the options of an export: arguments of the engine, keys of its Neuron part, or variables.

with spelled(keywords_of(args)):
    spec = read_args(args)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..base import env
from .neuron_options import keys_of, neuron_part

if TYPE_CHECKING:
    from .engine_args import EngineArgs

_OF_ARGUMENTS: Mapping[str, str] = {
    "batch_size": "max_num_seqs",
    "sequence_length": "max_model_len",
    "prefill_chunk_size": "max_num_batched_tokens",
    "num_blocks": "num_gpu_blocks_override + 1",
    "torch_dtype": "dtype",
    "extend_length": "num_speculative_tokens + 1",
    "instance_type": "OPTIMUM_NEURON_INSTANCE",
    "prefill_buckets": "context_encoding_buckets",
    "decode_buckets": "token_generation_buckets",
    "max_topk": "global_topk",
    **{name: name for name in ("tensor_parallel_size", "pipeline_parallel_size")},
    **{name: name for name in ("block_size", "quantization", "kv_cache_dtype")},
}
"""Options, and the argument or key that each is; the engine has one block and one checked token more."""


def keywords_of(args: EngineArgs) -> dict[str, str]:
    """Return the user's keyword for each option: what was passed, else an argument of the engine."""
    given, names = args.given, dict(_OF_ARGUMENTS)
    names |= {option: variable for option, variable in env.VLLM_BUCKETS.items() if option in env.vllm_buckets()}
    keys = keys_of(*neuron_part(args)).items()
    return names | {name: key for name, key in keys if _OF_ARGUMENTS.get(name, "").partition(" ")[0] not in given}
