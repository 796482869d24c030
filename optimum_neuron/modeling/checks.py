"""What a compiled decoder cannot take, said before anything runs: tokens, masks, lengths, results.

It knows nothing of graphs or cores.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..engine import Packing
from ..errors import ConfigError, ShapeError, refusal

logger = logging.getLogger(__name__)

_INPUT_DEVICES = ("cpu", "neuron")


def checked_mask(input_ids: torch.Tensor, mask: torch.Tensor | None, *, num_past: int, vocabulary: int) -> torch.Tensor:
    """Return the mask over all columns, after checking tokens and mask.

    Raises:
        ShapeError: there are no tokens, one is not in the vocabulary, or the mask is of another shape.
    """
    for name, tensor in (("input_ids", input_ids), ("attention_mask", mask)):
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise ShapeError(
                refusal(
                    asked=f"{name} as a {type(tensor).__name__}",
                    found="no tensor",
                    why="a compiled graph takes tensors",
                    do='pass what the tokenizer makes with return_tensors="pt"',
                )
            )
    _require_tokens(input_ids, vocabulary)
    wanted = (input_ids.shape[0], num_past + input_ids.shape[1])
    if mask is None:
        return torch.ones(wanted, dtype=torch.long)
    _require_mask(mask, wanted, num_past)
    return mask


def _require_tokens(input_ids: torch.Tensor, vocabulary: int) -> None:
    """Refuse what is no batch of tokens, or has one that the embedding has no row for."""
    if input_ids.is_floating_point() or input_ids.dtype == torch.bool:
        raise ShapeError(
            refusal(
                asked=f"input_ids of {str(input_ids.dtype).removeprefix('torch.')}",
                found="no token ids",
                why="the model takes whole numbers",
                do="pass what the model's own tokenizer makes",
            )
        )
    if input_ids.ndim != 2 or input_ids.shape[0] == 0 or input_ids.shape[1] == 0:
        raise ShapeError(
            refusal(
                asked=f"input_ids of shape {list(input_ids.shape)}",
                found="no batch of tokens",
                why="the model takes [rows, tokens], at least one of each",
                do="pass token ids of one or more rows",
            )
        )
    lowest, highest = int(input_ids.min()), int(input_ids.max())
    if lowest < 0 or highest >= vocabulary:
        raise ShapeError(
            refusal(
                asked=f"token id {lowest if lowest < 0 else highest}",
                found=f"the vocabulary has ids 0 to {vocabulary - 1}",
                why="the embedding has no row for it",
                do="use the tokenizer of this checkpoint",
            )
        )


def _require_mask(mask: torch.Tensor, wanted: tuple[int, int], num_past: int) -> None:
    """Refuse a mask of another shape, or of other values than 0 and 1."""
    if mask.ndim != 2:
        raise ShapeError(
            refusal(
                asked=f"attention_mask of shape {list(mask.shape)}",
                found=f"{mask.ndim} dimensions",
                why="the compiled graph lets each token see all real tokens before it and no others",
                do=f"pass 1 for real tokens and 0 for padding, in the shape {list(wanted)}",
            )
        )
    if tuple(mask.shape) != wanted:
        raise ShapeError(
            refusal(
                asked=f"attention_mask of shape {list(mask.shape)}",
                found=f"{num_past} columns are cached and {wanted[1] - num_past} are new",
                why="the mask covers every column once",
                do=f"pass a mask of shape {list(wanted)}",
            )
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise ShapeError(
            refusal(
                asked=f"attention_mask with {mask[(mask != 0) & (mask != 1)].flatten()[0].item()}",
                found="something else than 0 and 1",
                why="a token is seen or not",
                do="pass 1 for real tokens and 0 for padding",
            )
        )


def on_host(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bring tensors of the device "neuron" to the CPU, where compiled models take their inputs.

    Raises:
        ShapeError: some tensors are on other devices; all are named.
    """
    named = {**{f"input {place}": value for place, value in enumerate(args)}, **kwargs}
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    found = [
        f"{name} is on {tensor.device}" for name, tensor in tensors.items() if tensor.device.type not in _INPUT_DEVICES
    ]
    if found:
        raise ShapeError(
            refusal(
                asked="a call of a compiled model",
                found="; ".join(found),
                why="inputs are given on the CPU, and the runtime brings them to the simulated core",
                do="pass tensor.cpu(), and leave device= of a pipeline out",
            )
        )
    return tuple(map(_on_host, args)), {name: _on_host(value) for name, value in kwargs.items()}


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def check_length(packing: Packing, sequence_length: int) -> None:
    """Refuse what does not fit into the cache.

    Raises:
        ShapeError: a row has more tokens than slots.
    """
    needed = int(packing.positions_RT.max()) + 1
    if needed > sequence_length:
        raise ShapeError(
            refusal(
                asked=f"a sequence of {needed} tokens",
                found=f"compiled for {sequence_length}",
                why="the cache has one slot for each token of sequence_length",
                do="lower max_new_tokens, shorten the prompt, or export with a larger sequence_length",
            )
        )


def refuse_outputs(
    output_attentions: bool | None, output_hidden_states: bool | None, *, exportable: Collection[str] = ()
) -> None:
    """Refuse results that the graph does not have.

    Args:
        output_attentions: whether they are asked for, and the graph has none.
        output_hidden_states: likewise.
        exportable: those that an export of the model can have.

    Raises:
        ConfigError: one was asked for.
    """
    asked = [
        name
        for name, value in (
            ("output_attentions", output_attentions),
            ("output_hidden_states", output_hidden_states),
        )
        if value
    ]
    if asked:
        export = asked if set(asked) <= set(exportable) else []
        raise ConfigError(
            refusal(
                asked=f"{' and '.join(asked)}=True",
                found="the graph was exported without" if export else "the graph returns logits only",
                why="what a compiled graph returns is fixed at export",
                do=f"export with {', '.join(f'{name}=True' for name in export)}"
                if export
                else "run the original transformers model for intermediate results",
            )
        )


def limit_length(
    generation_config: GenerationConfig, attention_mask: torch.Tensor | None, sequence_length: int
) -> None:
    """End generation where the cache ends, and say so, instead of failing after all the work.

    Raises:
        ShapeError: the prompt leaves no room for a token.
    """
    # `generate` drops a mask of ones and keeps its length.
    columns = generation_config._mask_length if attention_mask is None else attention_mask.shape[1]
    longest = columns if attention_mask is None else int(attention_mask.sum(1).max())
    if longest >= sequence_length:
        raise ShapeError(
            refusal(
                asked=f"generating after a prompt of {longest} tokens",
                found=f"compiled for {sequence_length}, prompt and answer together",
                why="the cache has one slot for each token of sequence_length",
                do="shorten the prompt, or export with a larger sequence_length",
            )
        )
    # Columns of padding take no slot.
    limit = sequence_length + columns - longest
    if generation_config.max_length > limit:
        logger.warning(
            "generation is limited to %d new tokens instead of %d: the model was compiled for sequence_length=%d",
            limit - columns,
            generation_config.max_length - columns,
            sequence_length,
        )
        generation_config.max_length = limit


def check_rows(num_rows: int, hidden_RSD: torch.Tensor, mask_RS: torch.Tensor | None) -> None:
    """Refuse sources, masks and targets that are not of the same rows.

    Raises:
        ShapeError: they are not.
    """
    shape = hidden_RSD.shape[:2]
    if shape[0] != num_rows or (mask_RS is not None and mask_RS.shape != shape):
        found = "no attention_mask" if mask_RS is None else f"attention_mask of {list(mask_RS.shape)}"
        raise ShapeError(
            refusal(
                asked=f"{num_rows} targets over sources of {list(shape)} with {found}",
                found="shapes that do not belong together",
                why="each target reads its own source, of which the mask has each state once",
                do="pass a source and a mask row for each target",
            )
        )
