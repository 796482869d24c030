"""Buckets of prompts and of steps, by the rules of NxD Inference: powers of two, the longest as it is.

>>> generate_buckets(128, 600)
[128, 256, 600]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import NeuronConfig
    from .inference_config import InferenceConfig

SMALLEST = 128
"""Smallest bucket."""
SMALLEST_WITH_PREFIX = 256
"""Smallest bucket of a step with shared prefixes."""
SMALLEST_OF_PROMPTS = 512
"""Smallest bucket of a prompt with shared prefixes."""


def generate_buckets(min_length: int, max_length: int) -> list[int]:
    """Return powers of two from one length to another, and that length; the one next to it is left out."""
    if min_length == max_length:
        return [max_length]
    return [2**power for power in range(int(math.log2(min_length)), round(math.log2(max_length)))] + [max_length]


def generate_2d_buckets_for_prefix_caching(
    min_vertical_len: int,
    max_vertical_len: int,
    min_horizontal_len: int,
    max_horizontal_len: int,
    is_context_encode: bool = False,
) -> list[list[int]]:
    """Return pairs of new tokens and tokens of a prefix; prompts may have none."""
    new = generate_buckets(min_vertical_len, max_vertical_len)
    return _pairs(new, generate_buckets(min_horizontal_len, max_horizontal_len), is_context_encode)


def generate_2d_buckets_for_prefix_caching_from_config(
    vertical_ranges: Sequence[int], horizontal_ranges: Sequence[int], is_context_encode: bool = False
) -> list[list[int]]:
    """Return pairs of new tokens and tokens of a prefix, of buckets that are given."""
    return _pairs(vertical_ranges, horizontal_ranges, is_context_encode)


def _pairs(new: Sequence[int], prefixes: Sequence[int], has_none: bool) -> list[list[int]]:
    return [list(pair) for pair in itertools.product(new, [0] * has_none + list(prefixes))]


def generate_buckets_on_chunk_size(q_tile_size: int, max_context_len: int) -> list[int]:
    """Return the smallest, the middle, and the largest number of tiles that a chunk of tokens may have."""
    most = max(math.ceil(max_context_len / q_tile_size), 1)
    return [q_tile_size * number for number in sorted({1, (most - 1) // 2 + 1, most})]


def generate_buckets_for_chunked_prefill_cte(inference_config: InferenceConfig) -> list[Any]:
    """Return pairs of tokens of a chunk and tiles of the cache."""
    config = inference_config.neuron_config
    chunks, longest = config.chunked_prefill_config, config.max_context_length
    slots = config.max_length * chunks.max_num_seqs
    most = math.ceil(longest / chunks.kernel_q_tile_size) * math.ceil(slots / chunks.kernel_kv_tile_size)
    if not config.enable_bucketing:
        return [[longest, most]]
    if config.context_encoding_buckets is not None:
        return list(config.context_encoding_buckets)
    tiles = [1, most // 2, most] if most >= 4 else [most]
    return _pairs(generate_buckets_on_chunk_size(chunks.kernel_q_tile_size, longest), tiles, False)


def generate_buckets_for_cte(inference_config: InferenceConfig) -> list[Any]:
    """Return the buckets of prompts."""
    config = inference_config.neuron_config
    if config.is_chunked_prefill:
        return generate_buckets_for_chunked_prefill_cte(inference_config)
    longest, named = config.max_context_length, config.context_encoding_buckets
    if not config.enable_bucketing:
        new = prefixes = [longest]
    elif named is not None:
        new, prefixes = list(named), list(config.prefix_buckets or named)
    else:
        new = prefixes = generate_buckets(SMALLEST_OF_PROMPTS if config.is_prefix_caching else SMALLEST, longest)
    return _pairs(new, prefixes, True) if config.is_prefix_caching else new


def generate_buckets_for_tkg(inference_config: InferenceConfig) -> list[Any]:
    """Return the buckets of steps; with `token_generation_batches`, pairs of rows and slots."""
    config = inference_config.neuron_config
    buckets = generate_buckets_for_fused_spec(inference_config)
    if config.token_generation_batches is None:
        return buckets
    rows = sorted({*config.token_generation_batches, config.tkg_batch_size}, reverse=True)
    return _pairs(rows, buckets, False)


def generate_buckets_for_fused_spec(inference_config: InferenceConfig) -> list[Any]:
    """Return the buckets of steps with a draft."""
    config = inference_config.neuron_config
    smallest = SMALLEST_WITH_PREFIX if config.is_prefix_caching else SMALLEST
    buckets = _of_steps(config, smallest)
    return _pairs([1], buckets, False) if config.is_prefix_caching else buckets


def generate_buckets_for_speculation(inference_config: InferenceConfig) -> list[Any]:
    """Return the buckets of checks of a draft's tokens."""
    return _of_steps(inference_config.neuron_config, SMALLEST)


def _of_steps(config: NeuronConfig, smallest: int) -> list[int]:
    if not config.enable_bucketing:
        return [config.max_length]
    if config.token_generation_buckets is not None:
        return list(config.token_generation_buckets)
    return generate_buckets(smallest, config.max_length)
