"""How an encoder-decoder is called, as data: axes, padding, and limits of its inputs, and device-resident state."""

from __future__ import annotations

from collections.abc import Iterable

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...engine import Input, OutputAxis, RoleSignature, Signature, StateSignature
from .sources import Source

_BATCH = OutputAxis(dim=0, axis="batch_size")

_TARGET_CACHE = {
    "self_key": StateSignature(axes=("batch_size", "num_heads", "head_width", "num_slots")),
    "self_value": StateSignature(axes=("batch_size", "num_heads", "num_slots", "head_width")),
    "cross_key": StateSignature(axes=("batch_size", "num_heads", "num_states", "head_width"), is_shared=True),
    "cross_value": StateSignature(axes=("batch_size", "num_heads", "num_states", "head_width"), is_shared=True),
}


def encoder_decoder_signature(
    source: Source, model_config: PreTrainedConfig, *, encoded: Iterable[str], results: Iterable[str]
) -> Signature:
    """Return the signature of an encoder-decoder with the names of the encoder's and of the decoder's results."""
    limit = model_config.vocab_size if source.name == "input_ids" else None
    padding = facts_of(model_config).pad_token_id or 0 if source.name == "input_ids" else 0
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
