"""Options of a decoder, and errors for combinations of them that cannot be compiled.

for error in decoder_errors(config):
    print(error)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ..base.core import AttentionKernel, KVCacheDtype
from ..errors import ConfigError
from ..weights import parse_schemes
from .option import OPEN, option
from .sizes import count_errors, is_count, is_rising, rising_error

BLOCK_OPTIONS = ("block_size", "num_blocks")
"""Fields of a configuration that need `continuous_batching`."""
DEFAULT_BLOCK_SIZE, DEFAULT_CHUNK_SIZE = 32, 128
"""Tokens of a cache block, and prompt tokens that are read at once."""
KERNEL_BLOCK = 128
"""Tokens that an attention kernel has on the partitions of a core."""
SMALLEST_HALF = 32
"""A chunk that ends a prompt may have half as many tokens by default, if these are at least so many."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DecoderOptions:
    """Fields of a decoder's configuration that no other kind of model has; `NeuronConfig` adds those of every model."""

    batch_size: int = option(1, help="sequences or images per call")
    """Batch size of every graph; smaller batches are padded, larger ones are split."""
    sequence_length: int = option(
        OPEN, help="tokens of a sequence, prompt and answer; an encoder takes several, for example 64,128,512"
    )
    """Tokens of a sequence, prompt and answer together; None: the model's limit, at most 4096."""
    prefill_buckets: tuple[int, ...] = option(OPEN, help="prompt lengths to compile, for example 64,256")
    """Prompt lengths to compile for; None: 128, then four times longer each, up to sequence_length."""
    decode_buckets: tuple[int, ...] = option(OPEN, help="cache slots of a decode step, for example 1024,4096")
    """Cache slots that a decode step attends to; None: 1024, then four times as many, up to sequence_length."""
    extend_length: int = 8
    """Tokens that one call adds to a sequence that is already in the cache (assisted generation)."""
    speculation: bool = option(False, help="compile fast checks of extend_length tokens, for assisted generation")
    """Compile fast host code for checks of `extend_length` tokens, and return hidden states for draft heads."""
    hidden_state_layers: tuple[int, ...] | None = option(
        None, help="with speculation, layers whose inputs are returned for an EAGLE-3 draft"
    )
    """With `speculation`, layers whose inputs an EAGLE-3 draft reads; None: 2, the middle one, and the third last."""
    on_device_sampling: bool = option(False, help="decode steps return the likeliest tokens, not only logits")
    """Decode steps return the likeliest tokens too, and the host reads these in place of all logits where it can."""
    max_topk: int | None = option(None, help="with --on_device_sampling, likeliest tokens of a step (default: 256)")
    """Likeliest tokens of a step; None: 256, with `on_device_sampling`."""
    family: str | None = None
    """Implementation: a family's name or "generic"; None chooses."""
    tensor_parallel_size: int = option(
        1, help="cores that share every layer", flags=("--tensor_parallel_size", "--num_cores")
    )
    """Cores that share every layer: each has a part of the weights, of the cache, and of the work."""
    pipeline_parallel_size: int = option(1, help="stages that the layers are divided into, each on its own cores")
    """Stages that the layers are divided into, one after the other; each has `tensor_parallel_size` cores."""
    sequence_parallel: bool = option(
        False,
        help="with tensor parallelism, divide norms and residual stream of prompts along the sequence",
        flags=("--sequence_parallel", "--sequence_parallel_enabled"),
    )
    """Divide norms and residual stream of prompts along the sequence, where the cores divide a bucket's length."""
    max_loras: int | None = option(None, help="LoRA adapters that are loaded at once, beside the base model")
    """LoRA adapters that are loaded at once, beside the base model; None compiles a decoder without adapters."""
    max_lora_rank: int | None = option(None, help="largest rank of an adapter, with max_loras (default: 16)")
    """Largest rank of an adapter; None: 16, with `max_loras`."""
    lora_target_modules: tuple[str, ...] | None = option(
        None, help="modules that adapters may change, for example q_proj,v_proj (default: all linear layers)"
    )
    """Modules that adapters may change, by the end of their names as in PEFT; None: all linear layers."""
    continuous_batching: bool = option(
        False, help="requests join and leave a batch at every step and share a cache of blocks (generate_batch)"
    )
    """Requests join and leave a batch of `batch_size` rows at every step, and share a pool of cache blocks."""
    block_size: int | None = option(None, help="with --continuous_batching, tokens of a cache block (default: 32)")
    """Tokens of a block of the cache; None: 32."""
    num_blocks: int | None = option(
        None, help="with --continuous_batching, blocks of the cache (default: batch_size whole sequences, and one)"
    )
    """Blocks of the cache; None: enough for `batch_size` whole sequences. One of them takes what padding writes."""
    prefill_chunk_size: int | None = option(
        None, help="prompt tokens read at once; 0 for all (default with --continuous_batching: 128)", allows_zero=True
    )
    """Tokens of prompts read at once; 0: all. None: 0; with `continuous_batching` 128, or the last of the buckets."""

    quantization: str | None = option(
        None,
        help="store weights in 8 or 4 bits: int8, fp8, int4, or a form such as int4-g64-zp or int8-dynamic",
        metavar="SCHEME",
    )
    """Scheme of quantized weights: "int8", "fp8", "int4", with a group size, "mxfp4" for experts, or "int8-dynamic",
    which quantizes activations too; None: weights have `torch_dtype`."""
    modules_to_not_convert: tuple[str, ...] = option(
        (), help="modules that are not quantized, by their names in the checkpoint", metavar="NAME,NAME"
    )
    """Modules that are not quantized, such as "lm_head" or "down_proj", as transformers spells them."""

    kv_cache_dtype: KVCacheDtype = option(
        "auto", help="store keys and values in 8 bits (auto: in torch_dtype, or as the checkpoint says)"
    )
    """What keys and values are stored in: "int8" with a scale for each token and head, "fp8" (e4m3), "fp8-static" with
    the scales of the checkpoint, or "auto": as its `kv_cache_scheme` says, else in `torch_dtype`."""
    attention_kernel: AttentionKernel = option(
        "plain", help="attention of prompts: operators of PyTorch (plain), or the flash attention kernel in NKI (nki)"
    )
    """What attends in prompts: "plain", operators of PyTorch, or "nki", flash attention as a kernel, whose instructions
    the program holds and whose time they give."""


def wrong_type(name: str, value: object, expected: str) -> ConfigError:
    """Return the error for a value of a type that the field cannot have."""
    kind = type(value).__name__
    return ConfigError(f"{name}={value!r} is a {kind}.", hint=f"Pass {expected}.", option=name, value=value)


def decoder_errors(config: DecoderOptions) -> Iterator[ConfigError]:
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
    length = config.sequence_length
    are_counts = is_count(length) and is_count(config.extend_length)
    if config.speculation is True and are_counts and config.extend_length > length:
        message = f"extend_length={config.extend_length} is more than the {length} tokens of sequence_length."
        yield ConfigError(message, hint=f"Pass at most {length}.", option="extend_length", value=config.extend_length)
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


def block_sizes(config: DecoderOptions, length: int) -> dict[str, Any]:
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


def extend_lengths(config: DecoderOptions) -> tuple[int, ...]:
    """Return the tokens that calls add to sequences in the cache, rising: a few, and a chunk of a prompt.

    Args:
        config: a configuration; where no chunk is chosen, prompts are read in one piece.
    """
    # With continuous batching, chunks of prompts are prefill graphs.
    chunk = 0 if config.continuous_batching else config.prefill_chunk_size or 0
    lengths = {config.extend_length, chunk if chunk < config.sequence_length else 0}
    return tuple(sorted(length for length in lengths if length > 1))


def chunk_errors(config: DecoderOptions, parts: str) -> Iterator[ConfigError]:
    """Yield an error for each option that divides prompts, which may have parts that are no text."""
    for name in ("continuous_batching", "prefill_chunk_size"):
        if value := getattr(config, name):
            message = f"{name}={value} is not supported for prompts with {parts}."
            hint = "Remove it; a text model of the same family supports it."
            yield ConfigError(message, hint=hint, option=name, value=value)


def _block_errors(config: DecoderOptions) -> Iterator[ConfigError]:
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


def _bucket_errors(config: DecoderOptions, name: str) -> Iterator[ConfigError]:
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


def _adapter_errors(config: DecoderOptions) -> Iterator[ConfigError]:
    targets = config.lora_target_modules
    if targets is not None and (
        not isinstance(targets, (list, tuple)) or not targets or not all(isinstance(name, str) for name in targets)
    ):
        yield wrong_type("lora_target_modules", targets, 'a list of modules, for example ["q_proj", "v_proj"]')
    for name in ("max_lora_rank", "lora_target_modules"):
        if config.max_loras is None and (value := getattr(config, name)) is not None:
            message = f"{name}={value!r} has no effect: without max_loras, adapters cannot be loaded."
            yield ConfigError(message, hint="Pass max_loras too.", option=name, value=value)


def _quantization_errors(config: DecoderOptions) -> Iterator[ConfigError]:
    names, scheme = config.modules_to_not_convert, config.quantization
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        yield wrong_type("modules_to_not_convert", names, 'a list of modules, for example ["lm_head"]')
    elif names and scheme is None:
        message = f"modules_to_not_convert={list(names)} needs quantization, which is not set."
        yield ConfigError(message, hint="Pass quantization, or remove it.", option="modules_to_not_convert")
    if scheme is not None:
        try:
            parse_schemes(str(scheme))
        except ConfigError as error:
            yield error
