"""Check the audio that a compiled encoder reads, before the engine pads it.

Shape legend: R sequences, C channels, N frames or samples, S hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ..errors import ShapeError
from ..kinds.encoder_decoder import Source


def checked_audio(
    tensors: Mapping[str, torch.Tensor | None], attention_mask: torch.Tensor | None, source: Source
) -> tuple[dict[str, torch.Tensor], int, torch.Tensor | None]:
    """Return the inputs of an encoder, the hidden states of the longest sequence, and their mask [R, S].

    Both masks have 1 for real samples; without a mask, all are real.
    """
    content = _checked_content(tensors, source)
    if not source.is_masked:
        return {source.name: content}, source.num_states(content.shape[-1]), None
    mask_RN, lengths_R = _checked_mask(attention_mask, content, source)
    states_R = (lengths_R - source.window) // source.stride + 1
    mask_RS = (torch.arange(int(states_R.max())) < states_R[:, None]).long()
    return {source.name: content * mask_RN, "attention_mask": mask_RN}, mask_RS.shape[1], mask_RS


def _checked_content(tensors: Mapping[str, torch.Tensor | None], source: Source) -> torch.Tensor:
    wrong = list(_problems(tensors, source))
    if wrong:
        problems = [problem for _, problem in wrong]
        form = "[batch, samples]" if source.num_channels is None else f"[batch, {source.num_channels} channels, frames]"
        message = f"The audio does not fit the encoder: {'; '.join(problems)}. It takes {source.name}, float {form}."
        hint = "Pass the output of the model's feature extractor."
        raise ShapeError(message, hint=hint, names=[name for name, _ in wrong], problems=problems)
    content = tensors[source.name]
    assert content is not None
    return content.float()


def _problems(tensors: Mapping[str, torch.Tensor | None], source: Source) -> Iterator[tuple[str, str]]:
    """The inputs that do not fit, each with the reason."""
    for name, tensor in tensors.items():
        if name != source.name and tensor is not None:
            yield name, f"{name} is not an input of this model"
    content = tensors[source.name]
    if content is None:
        yield source.name, f"{source.name} is missing"
        return
    num_dims = 2 if source.num_channels is None else 3
    if content.ndim != num_dims:
        yield source.name, f"{source.name} has shape {list(content.shape)}"
    elif content.numel() == 0:
        yield source.name, f"{source.name} is empty: shape {list(content.shape)}"
    elif num_dims == 3 and content.shape[1] != source.num_channels:
        yield source.name, f"{source.name} has {content.shape[1]} channels"
    if not content.is_floating_point():
        yield source.name, f"{source.name} has dtype {str(content.dtype).removeprefix('torch.')}"


def _checked_mask(
    mask: torch.Tensor | None, content: torch.Tensor, source: Source
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask [R, N] and the length of each sequence."""
    mask_RN = torch.ones(content.shape, dtype=torch.int64) if mask is None else mask.long()
    hint = "Pass 1 for each real sample and 0 for padding at the end."
    if mask_RN.shape != content.shape:
        message = f"attention_mask has shape {list(mask_RN.shape)}, but {source.name} has {list(content.shape)}."
        details = {"shape": list(mask_RN.shape), "expected": list(content.shape)}
        raise ShapeError(message, hint=hint, option="attention_mask", **details)
    if (mask_RN[:, 1:] > mask_RN[:, :-1]).any():
        message = "attention_mask has padding before or inside a recording."
        raise ShapeError(message, hint=hint, option="attention_mask")
    lengths_R = mask_RN.sum(1)
    if (shortest := int(lengths_R.min())) < source.window:
        message = f"A recording has {shortest} samples, but the encoder's first hidden state needs {source.window}."
        raise ShapeError(message, hint="Pad the recording with silence, or leave it out.", num_samples=shortest)
    return mask_RN, lengths_R
