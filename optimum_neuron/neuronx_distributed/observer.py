"""Scales of channels from the largest absolute values that were seen, for the configurations of torch.ao.quantization.

observer = PerChannelAbsMaxObserver(ch_axis=0)
observer(weight)
scales, zero_points = observer.calculate_qparams()
"""

from __future__ import annotations

from typing import Any

import torch
from torch.ao.quantization.observer import UniformQuantizationObserverBase

from ..errors import invalid_choice


class PerChannelAbsMaxObserver(UniformQuantizationObserverBase):
    """Keeps the largest absolute value of each channel; its scale maps that to the largest number of the dtype.

    Args:
        ch_axis: dimension of the channels.
        dtype: torch.qint8.
        qscheme: torch.per_channel_symmetric.
        **options: as of torch's observers.
    """

    max_val: torch.Tensor

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: torch.dtype = torch.qint8,
        qscheme: torch.qscheme = torch.per_channel_symmetric,
        **options: Any,
    ) -> None:
        for name, given, only in (("dtype", dtype, torch.qint8), ("qscheme", qscheme, torch.per_channel_symmetric)):
            if given != only:
                raise invalid_choice(name, str(given), [str(only)])
        super().__init__(dtype=dtype, qscheme=qscheme, **options)
        self.ch_axis = ch_axis
        self.register_buffer("max_val", torch.zeros(0, 1))

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Return the tensor, and keep the largest absolute values of its channels.

        Args:
            x_orig: the tensor.
        """
        if x_orig.numel():
            largest = x_orig.detach().transpose(0, self.ch_axis).flatten(1).abs().amax(1, keepdim=True)
            self.max_val = torch.maximum(largest, self.max_val) if self.max_val.numel() else largest.float()
        return x_orig

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scale and the zero point of each channel; the latter is 0."""
        scales = torch.maximum(self.max_val / self.quant_max, self.eps).squeeze(1)
        return scales, torch.zeros_like(scales, dtype=torch.int64)
