"""Small models to trace, and a separate process to load them in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.tracing.script import neuron_models, session_of
from optimum_neuron.tracing.session import Session

FAST = "-O1"


def session(model: torch.jit.ScriptModule) -> Session:
    """The session of a traced model."""
    return session_of(neuron_models(model)[0])


class Mlp(nn.Module):
    """The perceptron of the vendor's documentation, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 8), nn.Linear(8, 6), nn.Linear(6, 4)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.fc3(self.relu(self.fc2(self.relu(self.fc1(x))))), dim=1)


class Convolutions(nn.Module):
    """A small network for images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(4, 3)
        self.eval()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(F.gelu(self.norm(self.conv(image))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Counter(nn.Module):
    """Adds its input to a buffer that stays on the device."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(2, size))
        self.scale = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = self.total + x
        return self.scale(total), total


@pytest.fixture(autouse=True)
def cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has the cores of its instance for itself."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))


@pytest.fixture
def inf1_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Inf1 instance; host code is not compiled."""
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf1.xlarge")
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")


@pytest.fixture(scope="session")
def mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp()


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    """Run a program in a separate process, with arguments, and return its output."""

    def run(program: str, *arguments: str) -> str:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run
