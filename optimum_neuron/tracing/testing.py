"""Compares results of a core with a reference: like allclose, with rtol scaled by the largest expected value.

A difference is accepted up to `atol + rtol * max(abs(expected))`, one bound for the whole tensor, because rounded
operands make errors of the size of the largest terms (Neuron docs, PyTorch Neuron release notes of 2.6.0.2.7,
`torch_neuronx.testing.assert_close`).
"""

from __future__ import annotations

import dataclasses

import torch

from .structure import flatten

DEFAULT_TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
}
"""rtol and atol by dtype, as in `torch.testing.assert_close`; other dtypes compare exactly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllcloseSummary:
    """The result of a comparison; true where it passed."""

    allclose: bool
    """Whether every element is within the bound."""
    max_abs_error: float
    """Largest difference."""
    max_rel_error: float
    """Largest difference, by the largest expected value."""
    bound: float
    """Largest difference that passes."""

    def __bool__(self) -> bool:
        return self.allclose


def neuron_allclose(
    actual: torch.Tensor,
    expected: torch.Tensor,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
) -> AllcloseSummary:
    """Compare two tensors.

    Args:
        actual: Computed value.
        expected: the reference, of the same shape.
        rtol: by the largest absolute expected value; None: by dtype.
        atol: absolute; None: by dtype.
        equal_nan: whether two NaN are equal.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing.testing import neuron_allclose

        summary = neuron_allclose(torch.tensor([100.0, 0.01]), torch.tensor([100.0, 0.0]), rtol=1e-3, atol=0)
        assert summary.allclose and round(summary.max_rel_error, 4) == 0.0001
        ```
    """
    default = max(_tolerances(actual), _tolerances(expected))
    rtol, atol = (default[0] if rtol is None else rtol), (default[1] if atol is None else atol)
    actual_64, expected_64 = actual.detach().double(), expected.detach().double()
    same = actual_64 == expected_64
    if equal_nan:
        same |= actual_64.isnan() & expected_64.isnan()
    error = torch.where(same, 0.0, (actual_64 - expected_64).abs())
    finite = expected_64[expected_64.isfinite()].abs()
    scale = finite.max().item() if finite.numel() else 0.0
    # A NaN is larger than any bound, so that it fails.
    largest = error.nan_to_num(nan=float("inf")).max().item() if error.numel() else 0.0
    bound = atol + rtol * scale
    return AllcloseSummary(
        allclose=largest <= bound,
        max_abs_error=largest,
        max_rel_error=largest / scale if scale else largest,
        bound=bound,
    )


def custom_allclose(
    expected: torch.Tensor, actual: torch.Tensor, atol: float = 1e-5, rtol: float = 1e-5
) -> tuple[bool, float]:
    """Compare two tensors; return whether they are close, and the largest error by the largest expected value."""
    summary = neuron_allclose(actual, expected, rtol=rtol, atol=atol)
    return summary.allclose, summary.max_rel_error


def assert_close(
    actual: object,
    expected: object,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | None = None,
) -> None:
    """Assert that tensors, also nested in tuples, lists and dictionaries, are close; see `neuron_allclose`.

    Raises:
        AssertionError: structure, shape, dtype or values differ; all tensors that do are named.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing.testing import assert_close

        assert_close({"logits": torch.ones(2)}, {"logits": torch.ones(2) + 1e-6})
        ```
    """
    left_flat, right_flat = flatten(actual, "actual"), flatten(expected, "expected")
    if left_flat.skeleton != right_flat.skeleton:
        raise AssertionError(msg or f"the structures differ: {left_flat.skeleton} and {right_flat.skeleton}")
    problems = []
    for name, left, right in zip(left_flat.names, left_flat.tensors, right_flat.tensors, strict=True):
        if left.shape != right.shape:
            problems.append(f"{name}: shape {list(left.shape)}, expected {list(right.shape)}")
        elif check_dtype and left.dtype != right.dtype:
            problems.append(f"{name}: dtype {left.dtype}, expected {right.dtype}")
        elif not (summary := neuron_allclose(left, right, rtol, atol, equal_nan)):
            problems.append(
                f"{name}: the largest difference is {summary.max_abs_error:.4g}, allowed {summary.bound:.4g}"
            )
    if problems:
        raise AssertionError(msg or "\n".join(problems))


def _tolerances(tensor: torch.Tensor) -> tuple[float, float]:
    return DEFAULT_TOLERANCES.get(tensor.dtype, (0.0, 0.0))
