"""Fourier transforms, which the compiler documents as unsupported."""

from __future__ import annotations

from .base import reject

reject(
    "fourier",
    "_fft_c2c _fft_c2r _fft_r2c fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft",
    "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn istft stft",
    code="NCC_EVRF001",
    reason="the compiler has no Fourier transform",
    remedy="multiply by the real and imaginary DFT matrices, or run it on the host with allow_host_ops",
)
