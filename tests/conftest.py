"""Shared by all tests: no network, no developer settings, one tiny Llama, and `optimum-cli` in-process.

The Llama is written, exported and loaded once for a whole run. Tests must not change these objects: one that damages
a folder copies it first, and one that changes a model loads its own (`NeuronModelForCausalLM.from_pretrained` of the
exported folder takes a tenth of a second).
"""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optimum_neuron.base import env, startup
from tests import compiled_once, sampling, warm
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, save_tiny, save_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from optimum_neuron import NeuronModelForCausalLM

# The Hub's library reads these once, when it is imported.
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

SLOW = (
    *("tests/docs/", "tests/distributed/", "tests/trainer/", "tests/sdk/test_scripts.py"),
    *("tests/kinds/encoder/test_architectures.py", "tests/exporters/test_architectures.py"),
    *("tests/exporters/test_export.py", "tests/modeling/test_image_text.py", "tests/modeling/test_leaks.py"),
    *("tests/modeling/test_seq2seq.py", "tests/modeling/test_tiers.py", "tests/device/test_operators.py"),
    *("tests/device/test_distributed.py", "tests/test_light_import.py", "tests/modeling/test_tensor_parallel.py"),
    *("tests/modeling/diffusion/test_pipelines.py", "tests/simulator/test_diffusion.py", "tests/xla/"),
    *("tests/kinds/diffusion/test_slicing.py", "tests/checkpoints/test_real.py", "tests/tracing/test_exit.py"),
)
"""Long files: last, they would keep one worker while the other has none left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    sampling.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the day's sample and make the caches of this run, once for all workers."""
    gc.disable()  # until tests are collected: it took half of the time of their collection
    if hasattr(config, "workerinput"):
        vars(config.option).update(config.workerinput["settled"])
        return
    sampling.settle(config)
    developers, run = env.home().absolute(), Path(tempfile.mkdtemp(prefix="optimum-neuron-tests-"))
    config.option.developers_home, config.option.run_folder = str(developers), str(run)
    results = config.cache.mkdir("compiled") if hasattr(config, "cache") else run / "results"
    os.environ.update(
        OPTIMUM_NEURON_HOME=str(run / "home"),
        TORCHINDUCTOR_CACHE_DIR=str(run / "inductor"),
        HF_HOME=str(run / "huggingface"),
        PATH=compiled_once.install(run / "compilers", results),
    )
    warm.prepare(run)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what was chosen."""
    names = ("day", "in_full", "developers_home", "run_folder")
    node.workerinput["settled"] = {name: getattr(node.config.option, name) for name in names}


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.option.run_folder, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str:
    return sampling.header(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Contracts with other libraries first, then the runtime, which counts the models of a process, then slow files.

    A session's fixture is a model. The Makefile sets xdist to keep the order. Exhaustive tests of other days are out.
    """
    first = ("tests/upstream/", "tests/runtime/", SLOW)
    items.sort(key=lambda item: [not item.nodeid.startswith(names) for names in first])
    others = sampling.left_out(items, config)
    config.hook.pytest_deselected(items=sorted(others, key=lambda item: item.nodeid))
    items[:] = [item for item in items if item not in others]


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, and collect seldom: captures make few cycles, and many objects.

    A twelfth of the time of tests was in collections; a test that needs one calls it.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches and core claims of this run are in a separate folder; no shell variable affects a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*env.VARIABLES, *startup.unused()):
            patch.delenv(name, raising=False)
        patch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        patch.setenv("OPTIMUM_NEURON_HOME", str(home := tmp_path_factory.mktemp("home")))
        # What one worker has compiled, another finds.
        shared = Path(request.config.option.run_folder, "neff")
        shared.mkdir(exist_ok=True)
        (home / "neff").symlink_to(shared)
        # Files outlive a test run by minutes at most, and a write to the disk takes longer than many a test.
        patch.setattr("os.fsync", lambda descriptor: None)
        # Beside another worker's tests, a process of low priority would hardly run.
        patch.setattr("optimum_neuron.compiler.lower.background.NICENESS", 0)
        patch.setattr("optimum_neuron.compiler.lower.background._started_worker", started_worker)
        yield


def started_worker() -> warm.Served:
    """Start the process that compiles host code as a fork."""
    import torch

    return warm.Served("-m", "optimum_neuron.compiler.lower.worker", str(torch.get_num_threads()), "0")


@pytest.fixture(autouse=True)
def quiet_trace() -> None:
    """pytest listens to every logger that does not propagate, and torch traces for whoever listens: slow and long."""
    trace = logging.getLogger("torch.__trace")
    trace.propagate = True
    trace.handlers.clear()


@pytest.fixture(autouse=True)
def fetched_checkpoints(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tests of real checkpoints use the developer's, so that they are fetched once, and what this run has built."""
    if request.node.get_closest_marker("checkpoint"):
        home, option = tmp_path_factory.mktemp("home"), request.config.option
        sources = {"checkpoints": Path(option.developers_home)}
        sources |= dict.fromkeys(("device", "host"), Path(option.run_folder, "home"))
        for name, source in sources.items():
            (source / name).mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(source / name)
        monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(home))


@pytest.fixture
def shared_neffs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compile cache of all workers, for tests in a home of their own whose subject is not the compile."""
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(Path(request.config.option.run_folder, "neff")))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of three layers with a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint") / "llama"
    return save_tokenizer(save_tiny(folder, "llama", vocab_size=NUM_BYTE_TOKENS))


@pytest.fixture(scope="session")
def original(checkpoint: Path) -> PreTrainedModel:
    """The Llama as transformers runs it, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def model(checkpoint: Path, environment: None) -> NeuronModelForCausalLM:
    """The Llama, exported with `SHAPES` and loaded."""
    from optimum_neuron import NeuronModelForCausalLM

    return NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **SHAPES)


@pytest.fixture(scope="session")
def export_folder(model: NeuronModelForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder of that model."""
    folder = tmp_path_factory.mktemp("exported") / "llama_neuron"
    model.save_pretrained(folder)
    return folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """Result of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs `optimum-cli` with the given words in this process, with the real registration."""
    from optimum.commands.optimum_cli import main

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["optimum-cli", *words])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        captured = capfd.readouterr()
        return Ran(code=code, stdout=captured.out, stderr=captured.err)

    return run
