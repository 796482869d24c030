"""Errors of this package by class and details: sentences may change without a test that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from optimum_neuron.errors import NeuronError


def refused_operators(error: pytest.ExceptionInfo[NeuronError]) -> dict[str, str]:
    """Return the operators that the target refuses, without overloads, and the code of each refusal."""
    rows = [row for row in error.value.details["operators"] if row["verdict"] == "unsupported"]
    return {".".join(row["op"].split(".")[:2]): row["code"] for row in rows}


@contextlib.contextmanager
def raises(
    kind: type[Exception] | tuple[type[Exception], ...], /, **details: Any
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error with at least these details; if it has several problems, one of them has the details."""
    with pytest.raises(kind) as error:
        yield error
    every = [getattr(error.value, "details", {})]  # other libraries' errors have none
    every += [problem.get("details", {}) for problem in every[0].get("problems", ()) if isinstance(problem, dict)]
    assert any(details.items() <= actual.items() for actual in every), every
