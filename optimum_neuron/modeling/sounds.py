"""Check the sounds that a compiled encoder is given, and pad them up to a compiled length.

It knows what the encoder reads and nothing of generation.

Shape legend: R rows, C channels, N frames or samples, S hidden states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import torch

from ..errors import ShapeError, refusal
from ..exporters.seq2seq.sources import Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sound:
    """Sounds as the graph takes them."""

    bucket: int
    """Compiled length that holds them."""
    inputs: list[torch.Tensor]
    """Inputs of the graph for all rows."""
    num_states: int
    """Hidden states of the longest row."""
    mask_RS: torch.Tensor | None
    """Which hidden states are real; None: all."""


def checked_sound(
    given: Mapping[str, torch.Tensor | None],
    attention_mask: torch.Tensor | None,
    source: Source,
    buckets: tuple[int, ...],
) -> Sound:
    """Sounds padded up to a compiled length.

    Args:
        given: tensors by the name of the argument.
        attention_mask: 1 for real places [R, N], where the source has a mask.
        source: what the encoder reads.
        buckets: compiled lengths.

    Raises:
        ShapeError: the tensor is missing, of another form or kind, or fits no compiled length.
    """
    content = _checked_content(given, source)
    length = content.shape[-1]
    fits = [bucket for bucket in buckets if length == bucket or (source.is_masked and length < bucket)]
    if not fits:
        raise ShapeError(
            refusal(
                asked=f"{source.name} with {source.axis}={length}",
                found=f"compiled for {', '.join(map(str, buckets))}",
                why="shorter recordings are padded, longer ones are not cut"
                if source.is_masked
                else "it is not padded",
                do=f"export with a larger {source.axis}"
                if source.is_masked
                else "pass what the model's own feature extractor makes at its sampling rate; it pads and cuts",
            )
        )
    bucket = fits[0]
    if not source.is_masked:
        return Sound(bucket=bucket, inputs=[content], num_states=source.num_states(length), mask_RS=None)
    mask_RN, lengths_R = _checked_mask(attention_mask, content, source)
    states_R = (lengths_R - source.window) // source.stride + 1
    mask_RS = (torch.arange(int(states_R.max())) < states_R[:, None]).long()
    missing = (0, bucket - length)
    padded = torch.nn.functional.pad(content * mask_RN, missing)
    inputs = [padded, torch.nn.functional.pad(mask_RN, missing)]
    return Sound(bucket=bucket, inputs=inputs, num_states=mask_RS.shape[1], mask_RS=mask_RS)


def _checked_content(given: Mapping[str, torch.Tensor | None], source: Source) -> torch.Tensor:
    problems = list(_problems(given, source))
    if problems:
        names = ", ".join(name for name, tensor in given.items() if tensor is not None) or "nothing"
        form = "[rows, samples]" if source.num_channels is None else f"[rows, {source.num_channels} channels, frames]"
        raise ShapeError(
            refusal(
                asked=f"running the encoder with {names}",
                found="; ".join(problems),
                why=f"it takes {source.name}, floating-point numbers {form}",
                do="pass what the model's own feature extractor makes, or encoder_outputs",
            )
        )
    content = given[source.name]
    assert content is not None
    return content.float()


def _problems(given: Mapping[str, torch.Tensor | None], source: Source) -> Iterator[str]:
    for name, tensor in given.items():
        if name != source.name and tensor is not None:
            yield f"{name} is no input of this model"
    content = given[source.name]
    if content is None:
        yield f"{source.name} is missing"
        return
    num_dims = 2 if source.num_channels is None else 3
    if content.ndim != num_dims:
        yield f"{source.name} has shape {list(content.shape)}"
    elif content.numel() == 0:
        yield f"{source.name} is empty: shape {list(content.shape)}"
    elif num_dims == 3 and content.shape[1] != source.num_channels:
        yield f"{source.name} has {content.shape[1]} channels"
    if not content.is_floating_point():
        yield f"{source.name} has {str(content.dtype).removeprefix('torch.')}"


def _checked_mask(
    mask: torch.Tensor | None, content: torch.Tensor, source: Source
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask [R, N] and the length of each row."""
    mask_RN = torch.ones(content.shape, dtype=torch.int64) if mask is None else mask.long()
    if mask_RN.shape != content.shape or (mask_RN[:, 1:] > mask_RN[:, :-1]).any():
        raise ShapeError(
            refusal(
                asked=f"attention_mask of shape {list(mask_RN.shape)} for {source.name} of {list(content.shape)}",
                found="another shape" if mask_RN.shape != content.shape else "padding before or inside a recording",
                why="a recording begins at its first sample and is padded at its end",
                do="pass 1 for each real sample and 0 for those behind them",
            )
        )
    lengths_R = mask_RN.sum(1)
    if int(lengths_R.min()) < source.window:
        raise ShapeError(
            refusal(
                asked=f"a recording of {int(lengths_R.min())} samples",
                found=f"the encoder's first state sees {source.window}",
                why="of fewer samples it makes nothing",
                do="pad the recording with silence, or leave it out",
            )
        )
    return mask_RN, lengths_R
