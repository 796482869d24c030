"""Each test begins as a new process would: nothing compiled, nothing reported."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def forget(fresh_dynamo: None) -> None:
    pass


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torch's caches in an empty folder."""
    path = tmp_path_factory.mktemp("inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(path))
    return path


def language_loss(model: Any, device: str) -> torch.Tensor:
    ids = torch.arange(12, device=device).view(1, 12)
    return model(input_ids=ids, labels=ids).loss


def compiled(function: Any, optlevel: str = "1", **options: Any) -> Any:
    return torch.compile(function, backend="neuron", options={"optlevel": optlevel, **options})


def require_same_gradients(model: Any, optlevel: str, loss_of: Callable[[Any, str], torch.Tensor]) -> None:
    """A compiled model has the loss and the gradients of the CPU; `loss_of` runs it on a device."""
    host, actual = copy.deepcopy(model), copy.deepcopy(model).to("neuron")
    expected, loss = loss_of(host, "cpu"), loss_of(compiled(actual, optlevel), "neuron")
    expected.backward()
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for (name, parameter), other in zip(host.named_parameters(), actual.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), parameter.grad, atol=1e-5, rtol=1e-4, msg=name)
