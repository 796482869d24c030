"""Matrix decompositions, solvers, Fourier transforms. Norms and products of `torch.linalg` need no rule here."""

from __future__ import annotations

from .base import reject, table
from .codes import ON_HOST

table("inverse", {"DotGeneral Div Sub Select": "inverse linalg_inv linalg_inv_ex"})
"""Accepted because the page of NCC_EVRF001 offers torch.inverse as the way around a triangular solve."""

reject(
    "decomposition",
    "_linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky cholesky_inverse cholesky_solve",
    "geqrf linalg_cholesky linalg_cholesky_ex linalg_cond linalg_det linalg_eig linalg_eigh linalg_eigvals",
    "linalg_eigvalsh linalg_householder_product linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq",
    "linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_matrix_rank linalg_pinv",
    "linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals logdet",
    "lu_solve lu_unpack ormqr pinverse qr slogdet svd triangular_solve",
    code="NCC_EVRF001",
    reason="the compiler has no matrix decompositions and solvers",
    remedy=f"multiply by torch.inverse where a solve is meant, precompute it before compiling, or run it {ON_HOST}",
)

reject(
    "fourier",
    "_fft_c2c _fft_c2r _fft_r2c fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft",
    "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn istft stft",
    code="NCC_EVRF001",
    reason="the compiler has no Fourier transform",
    remedy=f"multiply by the real and imaginary DFT matrices, or run it {ON_HOST}",
)
