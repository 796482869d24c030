"""Matrix decompositions and solvers. Norms and products of `torch.linalg` are ordinary reductions and matmuls."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, refuse, rule, table

table(
    "inverse",
    {
        "aten.inverse": "DotGeneral Div Sub Select",
        "aten.linalg_inv": "DotGeneral Div Sub Select",
        "aten.linalg_inv_ex": "DotGeneral Div Sub Select",
    },
)
"""Accepted because the page of NCC_EVRF001 offers torch.inverse as the way around a triangular solve."""


@rule(
    "decomposition",
    "aten._linalg_det",
    "aten._linalg_eigh",
    "aten._linalg_slogdet",
    "aten._linalg_solve_ex",
    "aten._linalg_svd",
    "aten.cholesky",
    "aten.cholesky_inverse",
    "aten.cholesky_solve",
    "aten.geqrf",
    "aten.linalg_cholesky",
    "aten.linalg_cholesky_ex",
    "aten.linalg_cond",
    "aten.linalg_det",
    "aten.linalg_eig",
    "aten.linalg_eigh",
    "aten.linalg_eigvals",
    "aten.linalg_eigvalsh",
    "aten.linalg_householder_product",
    "aten.linalg_ldl_factor",
    "aten.linalg_ldl_factor_ex",
    "aten.linalg_ldl_solve",
    "aten.linalg_lstsq",
    "aten.linalg_lu",
    "aten.linalg_lu_factor",
    "aten.linalg_lu_factor_ex",
    "aten.linalg_lu_solve",
    "aten.linalg_matrix_exp",
    "aten.linalg_matrix_rank",
    "aten.linalg_pinv",
    "aten.linalg_qr",
    "aten.linalg_slogdet",
    "aten.linalg_solve",
    "aten.linalg_solve_ex",
    "aten.linalg_solve_triangular",
    "aten.linalg_svd",
    "aten.linalg_svdvals",
    "aten.logdet",
    "aten.lu_solve",
    "aten.lu_unpack",
    "aten.ormqr",
    "aten.pinverse",
    "aten.qr",
    "aten.slogdet",
    "aten.svd",
    "aten.triangular_solve",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse every decomposition and solver."""
    return refuse(
        call,
        "decomposition",
        "NCC_EVRF001",
        "the compiler has no matrix decompositions and solvers",
        remedy="multiply by torch.inverse where a solve is meant, precompute it before compiling, or run it "
        "on the host with allow_host_ops",
    )
