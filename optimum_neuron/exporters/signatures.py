"""Signatures of programs with a cache, as data: axes, padding, and limits of their inputs, and device-resident state.

Encoder-style models have theirs measured (`encoders/plan.py`), because any architecture can be one. Decoders and
encoder-decoders are called in one way, which is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..engine import ADAPTER_INDEX, STATE_ROW, Input, OutputAxis, RoleSignature, Signature, StateSignature
from ..models import SLOTS, LayerState, counts_tokens, key_value_state
from .seq2seq import Source

_BATCH = OutputAxis(dim=0, axis="batch_size")
_ADAPTER = Input(name=ADAPTER_INDEX, dtype="int64", axes=("batch_size",), default=0)
_TOKENS = OutputAxis(dim=1, axis="num_tokens")

KEYS_AND_VALUES = (key_value_state(1, 1, 1),)
"""States of layers with a plain cache, in which sizes do not matter."""

_TARGET_CACHE = {
    "self_key": StateSignature(axes=("batch_size", "num_heads", "head_width", "num_slots")),
    "self_value": StateSignature(axes=("batch_size", "num_heads", "num_slots", "head_width")),
    "cross_key": StateSignature(axes=("batch_size", "num_heads", "num_states", "head_width"), is_shared=True),
    "cross_value": StateSignature(axes=("batch_size", "num_heads", "num_states", "head_width"), is_shared=True),
}


def decoder_signature(
    model_config: Any,
    layers: Iterable[LayerState],
    prompt_inputs: Iterable[Input] = (),
    *,
    takes_adapters: bool = False,
    is_paged: bool = False,
    outputs: Iterable[str] = ("logits",),
) -> Signature:
    """Return the signature of a decoder.

    Args:
        model_config: a transformers configuration.
        layers: what each layer keeps between calls.
        prompt_inputs: further inputs of prefill and score graphs.
        takes_adapters: every graph takes the adapter of each row, as its last input.
        is_paged: the cache is divided into blocks.
        outputs: names of the results.
    """
    layers, names = list(layers), tuple(outputs)
    if is_paged:
        return _paged_signature(model_config, layers, takes_adapters)
    vocabulary = model_config.get_text_config(decoder=True).vocab_size
    counts = Input(name="num_new_tokens", dtype="int64", axes=("batch_size",))
    tokens = (
        Input(name="input_ids", dtype="int64", axes=("batch_size", "num_tokens"), limit=vocabulary),
        Input(name="position_ids", dtype="int64", axes=("batch_size", "num_tokens")),
        *([counts] if counts_tokens(layers) else []),
    )
    prompt = (*tokens, *prompt_inputs)
    last = Input(name="last_index", dtype="int64", axes=("batch_size",))
    adapter = [_ADAPTER] * takes_adapters
    every = RoleSignature(inputs=(*tokens, *adapter), outputs={name: (_BATCH, _TOKENS) for name in names})
    one: dict[str, tuple[OutputAxis, ...]] = {name: (_BATCH,) for name in names}
    return Signature(
        roles={
            "prefill": RoleSignature(inputs=(*prompt, last, *adapter), outputs=one),
            "score": RoleSignature(inputs=(*prompt, *adapter), outputs=every.outputs),
            "extend": every,
            "decode": RoleSignature(inputs=every.inputs, outputs=one),
        },
        states={
            tensor.name: StateSignature(axes=("batch_size", *tensor.axes), is_fixed=tensor.is_fixed)
            for state in layers
            for tensor in state
        },
    )


def _paged_signature(model_config: Any, layers: Sequence[LayerState], takes_adapters: bool) -> Signature:
    """Return the signature of a decoder whose cache is divided into blocks, which tables assign to rows."""
    vocabulary = model_config.get_text_config(decoder=True).vocab_size
    step = (
        Input(name="input_ids", dtype="int64", axes=("batch_size", "num_tokens"), limit=vocabulary),
        Input(name="position_ids", dtype="int64", axes=("batch_size", "num_tokens")),
        Input(name="block_table", dtype="int64", axes=("batch_size", "num_row_blocks")),
    )
    counted = (*step, Input(name="num_new_tokens", dtype="int64", axes=("batch_size",)))
    # States that tokens change have a row for each row of a step; a chunk says which one it continues.
    changes = any(tensor.changes for state in layers for tensor in state)
    chunk = (*counted, *(Input(name=STATE_ROW, dtype="int64", axes=("batch_size",)),) * changes)
    last = Input(name="last_index", dtype="int64", axes=("batch_size",))
    adapter = [_ADAPTER] * takes_adapters
    outputs: dict[str, tuple[OutputAxis, ...]] = {"logits": (_BATCH, _TOKENS)}
    return Signature(
        roles={
            "prefill": RoleSignature(inputs=(*chunk, last, *adapter), outputs={"logits": (_BATCH,)}),
            "score": RoleSignature(inputs=(*chunk, *adapter), outputs=outputs),
            "extend": RoleSignature(inputs=(*counted, *adapter), outputs=outputs),
            "decode": RoleSignature(inputs=(*(counted if changes else step), *adapter), outputs={"logits": (_BATCH,)}),
        },
        states={
            tensor.name: StateSignature(
                axes=(
                    "num_blocks" if tensor.has_slots else "batch_size",
                    *("block_size" if axis == SLOTS else axis for axis in tensor.axes),
                )
            )
            for state in layers
            for tensor in state
        },
    )


def patches_signature(dtype: str, patches_per_token: int) -> RoleSignature:
    """Return the signature of a vision encoder that takes the patches of images of any shape."""
    patches = Input(name="pixel_values", dtype=dtype, axes=("num_images", "num_patches", "patch_width"))
    grids = Input(name="image_grid_thw", dtype="int64", axes=("num_images", "grid_axes"))
    tokens = OutputAxis(dim=1, axis="num_patches", window=patches_per_token, stride=patches_per_token)
    return RoleSignature(
        inputs=(patches, grids),
        outputs={"image_features": (OutputAxis(dim=0, axis="num_images"), tokens)},
        padded={"num_patches": "image_grid_thw says which patches are real"},
        exact=dict.fromkeys(("patch_width", "grid_axes"), "it is a property of the model"),
    )


def vision_signature(has_mask: bool, dtype: str) -> RoleSignature:
    """Return the signature of a vision encoder: any number of images of one size."""
    reason = "the vision encoder is compiled for one size of image"
    pixels = Input(name="pixel_values", dtype=dtype, axes=("num_images", "num_channels", "height", "width"))
    mask = Input(name="pixel_attention_mask", dtype="int64", axes=("num_images", "height", "width"), default=1)
    return RoleSignature(
        inputs=(pixels, mask) if has_mask else (pixels,),
        outputs={"image_features": (OutputAxis(dim=0, axis="num_images"),)},
        exact=dict.fromkeys(("num_channels", "height", "width"), reason),
    )


def image_inputs(*, has_blocks: bool, has_axes: bool) -> tuple[Input, ...]:
    """Return the inputs of prefill and score graphs that read features of images.

    Args:
        has_blocks: some tokens of a prompt see each other in both directions.
        has_axes: tokens of images have positions in time, height, and width.
    """
    blocks = Input(name="block_ids", dtype="int64", axes=("batch_size", "num_tokens"))
    positions = Input(name="axis_positions", dtype="int64", axes=("batch_size", "num_tokens", "position_axes"))
    offset = Input(name="position_offset", dtype="int64", axes=("batch_size", "one"))
    return (
        Input(name="image_index", dtype="int64", axes=("batch_size", "num_tokens")),
        Input(name="image_features", dtype="float32", axes=("batch_size", "num_features", "hidden_size")),
        *([blocks] if has_blocks else []),
        *([positions, offset] if has_axes else []),
    )


def encoder_decoder_signature(
    source: Source, model_config: Any, *, encoded: Iterable[str], results: Iterable[str]
) -> Signature:
    """Return the signature of an encoder-decoder with the names of the encoder's and of the decoder's results."""
    limit = model_config.vocab_size if source.name == "input_ids" else None
    padding = getattr(model_config, "pad_token_id", None) or 0 if source.name == "input_ids" else 0
    axes = ("batch_size", source.axis) if source.num_channels is None else ("batch_size", "num_channels", source.axis)
    content = Input(name=source.name, dtype=source.dtype, axes=axes, padding=padding, limit=limit)
    mask = Input(name="attention_mask", dtype="int64", axes=("batch_size", source.axis), default=1)
    exact = {} if source.num_channels is None else {"num_channels": "it is a property of the model"}
    exact |= {} if source.is_masked else {source.axis: "the encoder takes no mask"}
    token = Input(name="decoder_input_ids", dtype="int64", axes=("batch_size", "num_tokens"))
    masks = [Input(name="attention_mask", dtype="int64", axes=("batch_size", "num_states"))] * source.is_masked
    hidden = Input(name="encoder_hidden_states", dtype="float32", axes=("batch_size", "num_states", "hidden_size"))
    places = ("batch_size", "num_tokens") if source.has_row_positions else ("one",)
    position = Input(name="position", dtype="int64", axes=places)
    outputs = {name: (_BATCH, *_WIDTHS.get(name.partition(".")[0], ())) for name in results}
    return Signature(
        roles={
            "encode": RoleSignature(
                inputs=(content, mask) if source.is_masked else (content,),
                outputs={name: _encoded_axes(name, source) for name in encoded},
                padded={source.axis: "attention_mask marks padding"} if source.is_masked else {},
                exact=exact,
                smallest={source.axis: source.window} if source.window > 1 else {},
            ),
            "prefill": RoleSignature(inputs=(token, *masks, hidden), outputs=outputs),
            "decode": RoleSignature(inputs=(token, *masks, position), outputs=outputs),
        },
        states=_TARGET_CACHE,
    )


_WIDTHS = {
    "cross_attentions": (OutputAxis(dim=-1, axis="num_states"),),
    "decoder_attentions": (OutputAxis(dim=-1, axis="num_tokens"),),
}
"""Results of a token's layers whose last dimension is padded to the compiled size."""


def _encoded_axes(name: str, source: Source) -> tuple[OutputAxis, ...]:
    """Axes of a result of the encoder: hidden states [B, S, D], weights of attention [B, K, S, S]."""
    dims = (2, 3) if name.startswith("attentions") else (1,)
    states = (OutputAxis(dim=dim, axis=source.axis, window=source.window, stride=source.stride) for dim in dims)
    return (_BATCH, *states)
