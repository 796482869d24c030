"""Options of a decoder that contradict each other, or need one another.

It depends on no configuration class: a field that is checked is an attribute of any object.

    for error in decoder_errors(config):
        print(error)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import ConfigError
from ..weights import parse_schemes
from .sizes import count_errors, is_rising, rising_error

BLOCK_OPTIONS = ("block_size", "num_blocks")
"""Fields of a configuration that need `continuous_batching`."""
DEFAULT_BLOCK_SIZE, DEFAULT_CHUNK_SIZE = 32, 128
"""Tokens of a cache block, and prompt tokens that are read at once."""
KERNEL_BLOCK = 128
"""Tokens that an attention kernel has on the partitions of a core."""
SMALLEST_HALF = 32
"""A chunk that ends a prompt may have half as many tokens by default, if these are at least so many."""


def wrong_type(name: str, value: Any, expected: str) -> ConfigError:
    """Return the error for a value of a type that the field cannot have."""
    kind = type(value).__name__
    return ConfigError(f"{name}={value!r} is a {kind}.", hint=f"Pass {expected}.", option=name, value=value)


def decoder_errors(config: Any) -> Iterator[ConfigError]:
    """Yield an error for each value of a decoder's options that is not allowed beside the others."""
    yield from _block_errors(config)
    for name in ("prefill_buckets", "decode_buckets"):
        yield from _bucket_errors(config, name)
    yield from _quantization_errors(config)
    if config.sequence_parallel is True and config.tensor_parallel_size == 1:
        message = "sequence_parallel=True needs tensor parallelism, but tensor_parallel_size is 1."
        hint = "Pass tensor_parallel_size=2 or more, or remove sequence_parallel."
        yield ConfigError(message, hint=hint, option="sequence_parallel", value=True)
    if config.attention_kernel == "nki" and config.continuous_batching:
        message = 'attention_kernel="nki" attends to whole prompts, and continuous_batching reads them in chunks.'
        yield ConfigError(message, hint="Remove one of the two.", option="attention_kernel", value="nki")
    yield from _adapter_errors(config)
    if config.max_topk is not None and not config.on_device_sampling:
        message = f"max_topk={config.max_topk!r} needs on_device_sampling=True."
        yield ConfigError(message, hint="Pass it, or remove max_topk.", option="max_topk", value=config.max_topk)
    if config.speculation is True and config.extend_length == 1:
        message = "speculation=True checks extend_length tokens at once, but extend_length is 1."
        hint = "Pass extend_length=2 or more, or remove speculation."
        yield ConfigError(message, hint=hint, option="speculation", extend_length=1)
    layers = config.hidden_state_layers
    is_layers = isinstance(layers, (list, tuple)) and layers and all(type(layer) is int for layer in layers)
    if layers is not None and not is_layers:
        yield wrong_type("hidden_state_layers", layers, "a list of layers, for example [1, 2, 3]")
    elif layers is not None and not config.speculation:
        message = "hidden_state_layers is for drafts of speculation, but speculation is False."
        hint = "Pass speculation=True, or remove hidden_state_layers."
        yield ConfigError(message, hint=hint, option="hidden_state_layers", value=config.hidden_state_layers)


def require_kernel_blocks(kernel: str, prefill_buckets: Sequence[int]) -> None:
    """Check that an attention kernel can divide prompts into blocks."""
    undivided = [bucket for bucket in prefill_buckets if bucket % KERNEL_BLOCK]
    if kernel == "nki" and undivided:
        raise ConfigError(
            f'attention_kernel="nki" divides prompts into blocks of {KERNEL_BLOCK} tokens, and prefill_buckets has '
            f"{', '.join(map(str, undivided))}.",
            hint=f"Pass multiples of {KERNEL_BLOCK} as prefill_buckets, or remove attention_kernel.",
            option="attention_kernel",
            value=kernel,
            prefill_buckets=list(prefill_buckets),
        )


def block_sizes(config: Any, length: int) -> dict[str, Any]:
    """Return the sizes of a cache of blocks for sequences of so many tokens."""
    size = min(config.block_size or DEFAULT_BLOCK_SIZE, length)
    lengths = config.prefill_buckets or ()
    chunk = min(lengths[-1] if lengths else config.prefill_chunk_size or DEFAULT_CHUNK_SIZE, length)
    half = (chunk // 2,) if chunk // 2 >= SMALLEST_HALF else ()
    num_of_row = -(-length // size)
    num_blocks = config.num_blocks or config.batch_size * num_of_row + 1
    if num_blocks <= num_of_row:
        message = f"num_blocks={num_blocks} blocks of {size} tokens hold no sequence of {length} tokens."
        hint = f"Pass num_blocks={num_of_row + 1} or more: one block takes what padding writes."
        raise ConfigError(message, hint=hint, option="num_blocks", value=num_blocks, least=num_of_row + 1)
    buckets = lengths or (*half, chunk)
    return {"block_size": size, "num_blocks": num_blocks, "prefill_chunk_size": chunk, "prefill_buckets": buckets}


def extend_lengths(config: Any) -> tuple[int, ...]:
    """Return the tokens that calls add to sequences in the cache, rising: a few, and a chunk of a prompt.

    Args:
        config: a configuration; where no chunk is chosen, prompts are read in one piece.
    """
    # With continuous batching, chunks of prompts are prefill graphs.
    chunk = 0 if config.continuous_batching else config.prefill_chunk_size or 0
    lengths = {config.extend_length, chunk if chunk < config.sequence_length else 0}
    return tuple(sorted(length for length in lengths if length > 1))


def chunk_errors(config: Any, parts: str) -> Iterator[ConfigError]:
    """Yield an error for each option that divides prompts, which may have parts that are no text."""
    for name in ("continuous_batching", "prefill_chunk_size"):
        if value := getattr(config, name):
            message = f"{name}={value} is not supported for prompts with {parts}."
            hint = "Remove it; a text model of the same family supports it."
            yield ConfigError(message, hint=hint, option=name, value=value)


def _block_errors(config: Any) -> Iterator[ConfigError]:
    yield from count_errors(config, ("prefill_chunk_size",), optional=True, allows_zero=True)
    if not config.continuous_batching:
        for name in BLOCK_OPTIONS:
            if (value := getattr(config, name)) is not None:
                message = f"{name}={value!r} needs continuous_batching=True."
                yield ConfigError(message, hint=f"Pass it, or remove {name}.", option=name, value=value)
        if config.prefill_chunk_size and config.speculation is True:
            message = "speculation=True needs prompts in one piece, or continuous_batching=True."
            hint = "Remove prefill_chunk_size, or speculation."
            options = {"option": "prefill_chunk_size", "value": config.prefill_chunk_size}
            yield ConfigError(message, hint=hint, **options)
    buckets, chunk = config.prefill_buckets, config.prefill_chunk_size
    if buckets is not None and chunk and is_rising(buckets) and buckets[-1] != chunk:
        message = f"prefill_buckets={tuple(buckets)} ends with {buckets[-1]}, but prefill_chunk_size={chunk}."
        hint = f"End the buckets at {chunk}, or remove prefill_chunk_size."
        yield ConfigError(message, hint=hint, option="prefill_buckets", value=list(buckets), chunk_size=chunk)


def _bucket_errors(config: Any, name: str) -> Iterator[ConfigError]:
    buckets, length = getattr(config, name), config.sequence_length
    if buckets is None:
        return
    if not is_rising(buckets):
        yield rising_error(name, buckets)
    elif isinstance(length, int) and buckets[-1] > length:
        yield _end_error(name, buckets, length, "the cache has sequence_length slots")
    elif isinstance(length, int) and name == "decode_buckets" and buckets[-1] < length:
        yield _end_error(name, buckets, length, f"no decode graph covers the last {length - buckets[-1]} slots")


def _end_error(name: str, buckets: tuple[int, ...], length: int, reason: str) -> ConfigError:
    message = f"{name}={tuple(buckets)} does not fit sequence_length={length}: {reason}."
    hint = f"End the buckets at {length}."
    return ConfigError(message, hint=hint, option=name, value=list(buckets), sequence_length=length)


def _adapter_errors(config: Any) -> Iterator[ConfigError]:
    targets = config.lora_target_modules
    if targets is not None and (
        not isinstance(targets, (list, tuple)) or not targets or not all(isinstance(name, str) for name in targets)
    ):
        yield wrong_type("lora_target_modules", targets, 'a list of modules, for example ["q_proj", "v_proj"]')
    for name in ("max_lora_rank", "lora_target_modules"):
        if config.max_loras is None and (value := getattr(config, name)) is not None:
            message = f"{name}={value!r} has no effect: without max_loras, adapters cannot be loaded."
            yield ConfigError(message, hint="Pass max_loras too.", option=name, value=value)


def _quantization_errors(config: Any) -> Iterator[ConfigError]:
    names, scheme = config.modules_to_not_convert, config.quantization
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        yield wrong_type("modules_to_not_convert", names, 'a list of modules, for example ["lm_head"]')
    elif names and scheme is None:
        message = f"modules_to_not_convert={list(names)} needs quantization, which is not set."
        yield ConfigError(message, hint="Pass quantization, or remove it.", option="modules_to_not_convert")
    if scheme is None:
        return
    try:
        parse_schemes(str(scheme))
    except ConfigError as error:
        yield error
    if config.auto_cast != "none":
        message = f"quantization={scheme!r} rounds weights, and auto_cast={config.auto_cast!r} rounds them too."
        hint = "Pass one of the two; torch_dtype=bfloat16 makes activations narrow."
        yield ConfigError(message, hint=hint, options=["quantization", "auto_cast"])
