"""Checks of a decoder's inputs before anything runs: tokens, masks, lengths, and requested outputs.

It does not depend on graphs or cores.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..base.transformers_types import PreTrainedConfig
from ..engine import Packing
from ..errors import ConfigError, ShapeError, raise_together
from ..options.peer_attributes import follows_upstream, tell_ignored
from ..options.sizes import count_error, is_count

logger = logging.getLogger(__name__)

_INPUT_DEVICES = ("cpu", "neuron")


def checked_mask(input_ids: torch.Tensor, mask: torch.Tensor | None, *, num_past: int, vocabulary: int) -> torch.Tensor:
    """Check tokens and mask, and return the mask over all columns."""
    for name, tensor in (("input_ids", input_ids), ("attention_mask", mask)):
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            message = f"{name} is a {type(tensor).__name__}, but the model takes tensors."
            raise ShapeError(message, hint='Pass the output of the tokenizer with return_tensors="pt".', input=name)
    _check_tokens(input_ids, vocabulary)
    shape = [input_ids.shape[0], num_past + input_ids.shape[1]]
    if mask is None:
        return torch.ones(shape, dtype=torch.long)
    _check_mask(mask, shape, num_past)
    return mask


def _check_tokens(input_ids: torch.Tensor, vocabulary: int) -> None:
    dtype, shape = str(input_ids.dtype).removeprefix("torch."), list(input_ids.shape)
    if input_ids.is_floating_point() or input_ids.dtype == torch.bool:
        message = f"input_ids has dtype {dtype}, but token IDs are integers."
        raise ShapeError(message, hint="Pass the output of the model's own tokenizer.", input="input_ids", dtype=dtype)
    if input_ids.ndim != 2 or input_ids.numel() == 0:
        message = f"input_ids has shape {shape}, but the model takes [batch, tokens], at least one of each."
        raise ShapeError(message, hint="Pass at least one token per sequence.", input="input_ids", shape=shape)
    lowest, highest = int(input_ids.min()), int(input_ids.max())
    if lowest < 0 or highest >= vocabulary:
        token = lowest if lowest < 0 else highest
        message = f"Token ID {token} is not in the vocabulary (0 to {vocabulary - 1})."
        raise ShapeError(message, hint="Use the tokenizer of this checkpoint.", input="input_ids", token=token)


def _check_mask(mask: torch.Tensor, shape: list[int], num_past: int) -> None:
    hint, found = "Pass 1 for each real token and 0 for padding.", list(mask.shape)
    if found != shape:
        message = f"attention_mask has shape {found}, but {num_past} cached tokens and the new ones need {shape}."
        raise ShapeError(message, hint=hint, input="attention_mask", shape=found, expected=shape)
    other = mask[(mask != 0) & (mask != 1)].flatten().tolist()
    if other:
        raise ShapeError(f"attention_mask contains {other[0]}.", hint=hint, input="attention_mask", value=other[0])


def check_counts(**numbers: int) -> None:
    """Check that numbers are integers of at least 1."""
    raise_together(count_error(name, number) for name, number in numbers.items() if not is_count(number))


def on_host(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy tensors of the device "neuron" to the CPU, where compiled models take their inputs."""
    inputs = {**{f"input {place}": value for place, value in enumerate(args)}, **kwargs}
    devices = {name: value.device for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    elsewhere = {name: str(device) for name, device in devices.items() if device.type not in _INPUT_DEVICES}
    if elsewhere:
        places = ", ".join(f"{name} is on {device}" for name, device in elsewhere.items())
        message = f"{places}, but compiled models take inputs on the CPU."
        raise ShapeError(message, hint="Pass tensor.cpu(), and no `device` to a pipeline.", devices=elsewhere)
    return tuple(map(_on_host, args)), {name: _on_host(value) for name, value in kwargs.items()}


def _on_host(value: object) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


class HostCallable:
    """A call runs `forward`; the CPU has the results, and copies of inputs that are on the device "neuron"."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run `forward`."""
        args, kwargs = on_host(args, kwargs)
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]


def check_length(packing: Packing, sequence_length: int) -> None:
    """Check that the sequences fit the KV cache."""
    length = int(packing.positions_RT.max()) + 1
    if length > sequence_length:
        raise _too_long(f"The sequence has {length} tokens", "Lower max_new_tokens, shorten", length, sequence_length)


def _too_long(subject: str, action: str, length: int, limit: int) -> ShapeError:
    message = f"{subject}, but the model was compiled for sequence_length={limit} (prompt and answer together)."
    hint = f"{action} the prompt, or export with a larger sequence_length."
    return ShapeError(message, hint=hint, length=length, sequence_length=limit)


def refuse_outputs(
    output_attentions: bool | None, output_hidden_states: bool | None, *, exportable: Collection[str] = ()
) -> None:
    """Reject requests for outputs that the graph does not return; an export can return those in `exportable`.

    Under the rules of Optimum Neuron, requests for those in `exportable` are ignored with an INFO message.
    """
    flags = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
    names = [name for name, flag in flags.items() if flag]
    if not names:
        return
    listed = " and ".join(f"{name}=True" for name in names)
    if set(names) <= set(exportable):
        if follows_upstream():
            tell_ignored(listed, "the model was exported without it")
            return
        raise ConfigError(f"The model was exported without {listed}.", hint=f"Export with {listed}.", options=names)
    hint = "Run the transformers model for intermediate results."
    raise ConfigError(f"{listed} is not supported by this model.", hint=hint, options=names)


def refuse_layers(config: PreTrainedConfig, output_attentions: bool | None, output_hidden_states: bool | None) -> None:
    """Refuse results of layers that the model was exported without."""
    refuse_outputs(
        output_attentions and not config.output_attentions,
        output_hidden_states and not config.output_hidden_states,
        exportable=("output_attentions", "output_hidden_states"),
    )


def limit_length(
    generation_config: GenerationConfig, attention_mask: torch.Tensor | None, sequence_length: int
) -> None:
    """Limit `max_length` to the end of the KV cache with a warning, rather than fail after generating up to there."""
    # `generate` drops a mask of ones and keeps its length.
    columns = generation_config._mask_length if attention_mask is None else attention_mask.shape[1]
    longest = columns if attention_mask is None else int(attention_mask.sum(1).max())
    if longest >= sequence_length:
        raise _too_long(f"The prompt has {longest} tokens", "Shorten", longest, sequence_length)
    # Columns of padding take no slot.
    limit = sequence_length + columns - longest
    if generation_config.max_length > limit:
        new, asked = limit - columns, generation_config.max_length - columns
        reason = f"the model was compiled for sequence_length={sequence_length}"
        logger.warning("generation is limited to %d new tokens instead of %d: %s", new, asked, reason)
        generation_config.max_length = limit


def check_rows(num_rows: int, hidden_RSD: torch.Tensor, mask_RS: torch.Tensor | None) -> None:
    """Check that sources, masks, and targets have the same batch size."""
    shape, mask = list(hidden_RSD.shape[:2]), None if mask_RS is None else list(mask_RS.shape)
    if shape[0] != num_rows or mask not in (None, shape):
        message = f"{num_rows} targets do not match encoder states of shape {shape} with attention_mask {mask}."
        hint = "Pass one encoded source and one row of the mask for each target."
        raise ShapeError(message, hint=hint, num_targets=num_rows, shape=shape, mask_shape=mask)
