"""Each test begins as a new process would: nothing compiled, nothing reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torch's caches in an empty folder."""
    path = tmp_path_factory.mktemp("inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(path))
    return path
