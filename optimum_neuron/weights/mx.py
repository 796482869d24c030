"""Numbers of the OCP format mxfp4, as gpt-oss stores them: fp4 e2m1 in runs of 32 that share a power of two.

Two neighbors share a byte, the first one in its low half. A scale is the exponent of a float32 with its bias of 127
(e8m0). Source: OCP Microscaling Formats specification 1.0, sections 5.3 and 6.3.

    dequantized = unpack_mx(values) * mx_scale(scale)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Between the eight magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, and 6."""
_LARGEST_EXPONENT, _BIAS, _MANTISSA_BITS = 2, 127, 23


def unpack_mx(values: torch.Tensor) -> torch.Tensor:
    """Return the float32 numbers [..., I] of bytes [..., I / 2]."""
    import torch

    return mx_numbers(torch.stack([values & 15, values >> 4], -1).flatten(-2))


def mx_numbers(codes: torch.Tensor) -> torch.Tensor:
    """Return the float32 numbers of codes of 4 bits, one in each element."""
    import torch

    step = (codes & 7).float()
    # Twice the magnitude of a code: steps of 1 up to 4, then 6, 8, and 12.
    doubled = step + (step - 4).clamp(min=0) + 2 * (step - 6).clamp(min=0)
    return torch.where(codes > 7, -0.5, 0.5) * doubled


def mx_scale(scale: torch.Tensor) -> torch.Tensor:
    """Return the float32 powers of two of exponents; those of 0, which are too small to matter, become zero."""
    import torch

    return (scale.to(torch.int32) << _MANTISSA_BITS).view(torch.float32)


def quantize_mx(weight_GI: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bytes [..., G, I / 2] and exponents [..., G] of runs [..., G, I]; the nearest numbers, up to 6."""
    import torch

    exponent_G = torch.frexp(weight_GI.abs().amax(-1)).exponent - 1 - _LARGEST_EXPONENT
    scale_G = (exponent_G + _BIAS).clamp(min=1).to(torch.uint8)
    scaled = weight_GI / mx_scale(scale_G)[..., None]
    codes = torch.bucketize(scaled.abs().contiguous(), torch.tensor(_MIDPOINTS)).to(torch.uint8) | (
        (scaled < 0).to(torch.uint8) << 3
    )
    low, high = codes.unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4), scale_G
