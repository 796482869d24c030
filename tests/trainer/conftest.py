"""Trainers of the tests: tiny models, a device that is built already, processes with a core each."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.device.conftest import ROOT, SIZES, built, default_state, llama, one_layer, python  # noqa: F401  (fixtures)

LAUNCHERS = {
    "torchrun": ("torch.distributed.run", "--standalone", "--nproc_per_node"),
    "accelerate": (
        *("accelerate.commands.launch", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
        *("--main_process_port", "0", "--num_processes"),
    ),
}
"""Modules that start processes, and their options up to the number of processes."""


def spawn(*words: str, num_processes: int, launcher: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a module in processes with a core each; without a launcher they are forks, which need not import."""
    if launcher is None:
        return warm.run_ranks(*words, num_processes=num_processes, OPTIMUM_NEURON_INSTANCE=warm.SEPARATE_INSTANCE)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": warm.SEPARATE_INSTANCE}
    command = [sys.executable, "-m", *LAUNCHERS[launcher], str(num_processes), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=900, env=environment)


@pytest.fixture(scope="session")
def bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES, num_labels=3))


@pytest.fixture(scope="session")
def sentences() -> list[dict[str, torch.Tensor]]:
    """Rows for causal language models."""
    return [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(32)]


@pytest.fixture(scope="session")
def classes() -> list[dict[str, torch.Tensor]]:
    """Rows for sequence classification."""
    return [{"input_ids": torch.arange(12) + i, "labels": torch.tensor(i % 3)} for i in range(24)]


def make_trainer(
    folder: Path | str, model: Any, rows: Any, *, upstream: bool = False, kind: Any = None, **options: Any
) -> Any:
    """A trainer around a copy of a model, ours or upstream's on the CPU; options are its arguments, or its own."""
    from transformers import Trainer, TrainingArguments

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

    names = {"compute_metrics", "callbacks", "data_collator", "eval_dataset", "model_init", "peft_config"}
    names |= {"processing_class", "optimizers", "compute_loss_func"}
    keywords = {name: options.pop(name) for name in names & set(options)}
    defaults = dict(output_dir=str(folder), max_steps=4, logging_steps=1, learning_rate=1e-2, save_strategy="no")
    defaults |= dict(per_device_train_batch_size=4, disable_tqdm=True, report_to=[], use_cpu=upstream)
    arguments = (TrainingArguments if upstream else NeuronTrainingArguments)(**{**defaults, **options})
    kind = kind or (Trainer if upstream else NeuronTrainer)
    return kind(copy.deepcopy(model), arguments, train_dataset=rows, **keywords)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    """Return `make_trainer` for a temporary folder."""
    return functools.partial(make_trainer, tmp_path / "out")


@pytest.fixture
def train(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes a trainer and trains it."""

    def run(model: Any, rows: Any, *, resume: Any = None, **options: Any) -> Any:
        trainer = make(model, rows, **options)
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    return run


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of compiled graphs run one by one: graphs are the same as with a compiler, and ready at once."""
    monkeypatch.setattr("optimum_neuron.device.dynamo.backend.probe_compiler", lambda: None)


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
