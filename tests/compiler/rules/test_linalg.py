"""Decompositions and solvers are refused; inverse, norms and products are not."""

import pytest
import torch


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.triangular_solve(b, a).solution,
        torch.linalg.solve,
        lambda a, b: torch.linalg.cholesky(a) @ b,
        lambda a, b: torch.linalg.qr(a).Q @ b,
        lambda a, b: torch.linalg.svd(a).S,
        lambda a, b: torch.linalg.eigh(a).eigenvalues,
        lambda a, b: torch.linalg.det(a) * b,
    ],
    ids=["triangular_solve", "solve", "cholesky", "qr", "svd", "eigh", "det"],
)
def test_decompositions_are_refused(check, function):
    refused = check(function, torch.eye(4), torch.randn(4, 2)).refused
    assert {r.code for r in refused} == {"NCC_EVRF001"}
    assert "torch.inverse" in refused[0].remedy


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.inverse(a) @ b,
        lambda a, b: torch.linalg.vector_norm(a) * b,
        lambda a, b: torch.linalg.multi_dot([a, a, b]),
    ],
    ids=["inverse", "norm", "multi_dot"],
)
def test_the_rest_of_linalg_is_accepted(check, function):
    assert not check(function, torch.eye(4), torch.randn(4, 2)).refused
