"""The device's answers to `torch.autocast` and its users."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that autocast may cast to."""
    return [torch.bfloat16, torch.float16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always: bfloat16 is the native type of every NeuronCore since v2. The argument is `torch.cuda`'s."""
    return True
