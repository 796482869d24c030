"""The device is built once for a machine; processes that tests start find it in the caches of the test run.

Shared by tests of compilation: small models, and a Dynamo that has compiled nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optimum_neuron.compiler.lower import probe_compiler
from optimum_neuron.device import library
from tests import warm

ROOT = Path(__file__).resolve().parents[2]

needs_compiler = pytest.mark.skipif(probe_compiler() is None, reason="Inductor needs a C++ compiler")
OPTLEVELS = ["1", pytest.param("2", marks=[needs_compiler, pytest.mark.full(days=4)])]
SIZES: dict[str, Any] = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)
"""Of a small model."""

# Chosen before a test run sets its caches, so that the developer's is used and nothing is built twice.
library.place()


@pytest.fixture(scope="session", autouse=True)
def built(environment: None, request: pytest.FixtureRequest) -> Path:
    """The shared object, loaded here and copied to where new processes of the tests, and forks, look for it."""
    library.load()
    shared_object = library.place().with_suffix(".so")
    homes = Path(request.config.option.run_folder, "home"), Path(os.environ["OPTIMUM_NEURON_HOME"])
    for folder in (home / "device" for home in homes):
        if folder != library.place().parent:
            folder.mkdir(parents=True, exist_ok=True)
            for path in (library.place(), shared_object):
                place_copy(path, folder)
    return folder / shared_object.name


def place_copy(path: Path, folder: Path) -> None:
    """Copy a file into a folder, not in place: processes that have mapped an older copy would crash."""
    part = Path(shutil.copy2(path, folder / f"{path.name}.{os.getpid()}"))
    part.replace(folder / path.name)


@pytest.fixture(autouse=True)
def default_state() -> Iterator[None]:
    yield
    # Not `set_device`: the test may have left an environment without devices.
    library.load().neuron_set_device(0)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Begin as a new process would: nothing compiled, nothing reported."""
    import torch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@contextlib.contextmanager
def host_threads(number: int) -> Iterator[None]:
    """Let torch use this many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_llama(**changes: Any) -> Any:
    """A small Llama, always with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_key_value_heads": 2, **changes}))


@pytest.fixture(scope="session")
def llama() -> Any:
    return make_llama()


@pytest.fixture(scope="session")
def one_layer() -> Any:
    """The smallest Llama, for graphs that are compiled."""
    return make_llama(num_hidden_layers=1)


# A separate instance: this process has cores of the default one.
SEPARATE = {"OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"}


@pytest.fixture
def python(built: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program in a separate process, which has imported torch and used no device."""

    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return warm.run("-c", program, env={**os.environ, **SEPARATE, **environment})

    return run


@pytest.fixture
def new_python(built: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same for tests of the start of a process: nothing is imported before."""

    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command, variables = [sys.executable, "-c", program], {**os.environ, **SEPARATE, **environment}
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables)

    return run
