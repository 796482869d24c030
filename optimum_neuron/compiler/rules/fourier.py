"""Fourier transforms, which the compiler documents as unsupported."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, refuse, rule


@rule(
    "fourier",
    "aten._fft_c2c",
    "aten._fft_c2r",
    "aten._fft_r2c",
    "aten.fft_fft",
    "aten.fft_fft2",
    "aten.fft_fftn",
    "aten.fft_hfft",
    "aten.fft_ifft",
    "aten.fft_ifft2",
    "aten.fft_ifftn",
    "aten.fft_ihfft",
    "aten.fft_irfft",
    "aten.fft_irfft2",
    "aten.fft_irfftn",
    "aten.fft_rfft",
    "aten.fft_rfft2",
    "aten.fft_rfftn",
    "aten.istft",
    "aten.stft",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse every transform."""
    return refuse(
        call,
        "fourier",
        "NCC_EVRF001",
        "the compiler has no Fourier transform",
        remedy="multiply by the real and imaginary DFT matrices, or run it on the host with allow_host_ops",
    )
