"""Operators that a compiled forward and backward can have, from torch's own database; `operators.py` runs all of it."""

from __future__ import annotations

import json
import os

import pytest

from tests import warm

NAMES = ["flip", "linalg.inv", "nn.functional.embedding_bag", "cdist", "sgn", "mm", "lgamma", "cummax", "roll"]
NAMES += ["nn.functional.grid_sample", "nn.functional.dropout", "nn.functional.adaptive_max_pool2d"]
REFUSED = ["sort", "linalg.svd", "fft.fft"]


@pytest.fixture(scope="module")
def problems(request, built) -> dict[str, list[str] | None]:
    """Problems of the operators of the day, found in a fork: torch's test utilities change settings permanently."""
    pytest.importorskip("expecttest", reason="torch's database of operators needs it")
    environment = {**os.environ, "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge", "OMP_NUM_THREADS": "1"}
    items = [item for item in request.session.items if item.path == request.path]
    names = sorted({item.callspec.params["name"] for item in items})
    words = ["-m", "tests.device.dynamo.operators", "--json", "--samples", "1", *names]
    result = warm.run(*words, env=environment)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


@pytest.mark.full(days=3)
@pytest.mark.parametrize("name", NAMES)
def test_operator_equals_the_one_of_the_cpu(problems, name):
    assert problems[name] is None


@pytest.mark.full(days=3)
@pytest.mark.parametrize("name", REFUSED)
def test_operator_with_published_refusal_needs_permission(problems, name):
    assert problems[name][0] == "refused"
