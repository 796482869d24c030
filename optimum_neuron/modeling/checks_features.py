"""Checks of the features of images or audio that stand for tokens of a prompt."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ..engine import Modality
from ..errors import ConfigError, ShapeError
from ..upstream.cache_argument import CACHE

MAIN = {"image": "pixel_values", "audio": "input_features"}
"""Modality to the input that the features are computed from."""
_FEWER = {"image": ", set do_image_splitting=False", "audio": ""}


def encoded_features(
    outputs: dict[str, Any] | None,
    inputs: torch.Tensor | None,
    details: dict[str, Any],
    *,
    num_past: int,
    modality: Modality = "image",
) -> list[torch.Tensor]:
    """Return the features in `outputs`, an empty list if there are none; `details` come with the main inputs."""
    main = MAIN[modality]
    outputs = outputs or {}
    if other := sorted(outputs.keys() - {modality}):
        message = f"mm_encoder_outputs has {', '.join(other)}, but the model takes {modality} only."
        hint = f"Pass the result of get_{modality}_features() under '{modality}'."
        raise ConfigError(message, hint=hint, arguments=["mm_encoder_outputs"], keys=other)
    features = outputs.get(modality)
    alone = [name for name, value in details.items() if value is not None and inputs is None]
    if alone and (features is None or alone != ["image_grid_thw"]):
        message, hint = f"{', '.join(alone)} needs {main}.", "Pass both, as the processor returns them."
        raise ConfigError(message, hint=hint, arguments=alone)
    if features is not None and inputs is not None:
        message = f"{main} and mm_encoder_outputs are two sources of the same features."
        raise ConfigError(message, hint="Pass one of them.", arguments=[main, "mm_encoder_outputs"])
    if num_past > 0 and (features is not None or inputs is not None):
        past = f"after {num_past} cached tokens: decode graphs take token IDs only."
        message = f"{main} cannot be added {past}"
        hint = f"Pass the whole prompt with all its {main}, without {CACHE}."
        raise ConfigError(message, hint=hint, arguments=[CACHE])
    return [] if features is None else list(features.pooler_output)


def check_features(
    counts: list[int], lengths: list[int], *, num_tokens: int, most: int, by_row: bool, modality: Modality = "image"
) -> None:
    """Check that each prompt has as many image or audio tokens as it has features.

    Args:
        counts: image or audio tokens in each row.
        lengths: features of each row with `by_row`, else of each image or audio.
        num_tokens: tokens of the largest image or audio.
        most: images or audios of a row.
        by_row: whether features come by row.
        modality: the model's input beside text.
    """
    limit = f"max_num_{modality}s"
    crowded = {row: -(-count // num_tokens) for row, count in enumerate(counts) if count > most * num_tokens}
    if crowded:
        rows = "; ".join(f"Row {row} has {count} {modality}s" for row, count in crowded.items())
        parts = {"image": "tile of a split image", "audio": "30 seconds of a longer audio"}[modality]
        message = f"{rows}, but {limit}={most} was compiled (each {parts} counts)."
        hint = f"Pass fewer {modality}s{_FEWER[modality]}, or export with a larger {limit}."
        raise ShapeError(message, hint=hint, **{f"num_{modality}s": crowded, limit: most})
    if by_row and len(lengths) == len(counts):
        problems = [
            f"Row {row} has {count} {modality} tokens and {length} features"
            for row, (count, length) in enumerate(zip(counts, lengths, strict=True))
            if count != length
        ]
    elif sum(counts) != sum(lengths):
        problems = [f"The prompts have {sum(counts)} {modality} tokens and {sum(lengths)} features"]
    else:
        ends = {0, *itertools.accumulate(lengths)}
        torn = {row for row, end in enumerate(itertools.accumulate(counts)) if end not in ends}
        # A row with a part of one takes it from a neighbor, or leaves it to one.
        torn |= {row + 1 for row in torn}
        problems = [f"Row {row} has {counts[row]} {modality} tokens" for row in sorted(torn)]
    if problems:
        message = f"{'; '.join(problems)}. An {modality} takes {num_tokens} {modality} tokens of its row."
        hint = f"Let the model's processor make input_ids and {MAIN[modality]} together."
        raise ShapeError(message, hint=hint, problems=problems, **{f"{modality}_tokens": num_tokens})
