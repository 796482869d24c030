"""Compare the quantized weights of a program with those of its reference model, one matrix after the other.

Results of a whole model are compared with tolerances that hide a wrong scale in a few rows. A weight whose numbers are
those of the files must be equal, and one that was rounded must be as near as its scheme allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...base.core import Choice
from ...base.wording import listed
from ...errors import ValidationError
from ...weights import Scheme, mx_scale

if TYPE_CHECKING:
    import torch

_RELATIVE, _OF_LARGEST = 2.0**-10, 1e-5
"""What float16 scales and halved fp8 numbers may change, of each weight and of the largest of its output."""
_STEPS = {"int8": 1.0, "int4": 1.5, "mxfp4": 2.0}
"""Largest rounding error in scales: half a step, or more past the last number or with a rounded zero point."""
_NUM_SHOWN = 6


def weight_error(
    expected: torch.Tensor, actual: torch.Tensor, scheme: Scheme, scale_OG: torch.Tensor, *, is_stored: bool
) -> float:
    """Return the largest difference of weights [..., O, I] that is past what rounding explains; 0.0 if there is none.

    Args:
        is_stored: whether the numbers are those of the files, so that nothing was rounded.
    """
    if is_stored:
        allowed = _RELATIVE * expected.abs() + _OF_LARGEST * expected.abs().amax(-1, keepdim=True)
    else:
        scale = (mx_scale(scale_OG) if scheme.kind == "mxfp4" else scale_OG.float()).abs()
        step = scale.repeat_interleave(expected.shape[-1] // scale.shape[-1], -1)
        allowed = expected.abs() / 8 + step / 64 if scheme.kind == "fp8" else _STEPS[scheme.kind] * step
    difference = (actual - expected).abs()
    past = difference[~(difference <= allowed)]
    return past.max().item() if past.numel() else 0.0


def require_same_weights(errors: Mapping[str, float], reader: Choice[str]) -> None:
    """Check that no weight differs from that of the reference model.

    Args:
        errors: largest differences by weight; 0.0: there is none.
        reader: the library that read the weights of the reference model.
    """
    wrong = {name: error for name, error in errors.items() if error != 0.0}
    if not wrong:
        return
    shown = listed([f"{name} by {error:.3g}" for name, error in wrong.items()], _NUM_SHOWN)
    message = f"Weights of the compiled model do not match the checkpoint as read by {reader.value}: {shown}."
    hint = "Pass the checkpoint that it was quantized from, and report this one."
    raise ValidationError(message, hint=hint, weights=wrong, reader=reader.value)
