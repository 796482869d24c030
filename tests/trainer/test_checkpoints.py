"""Checkpoints are whole or not there, also where the process is killed; only the model's own are resumed."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from optimum_neuron.errors import ArtifactError, ModelError
from optimum_neuron.trainer import checkpoints
from tests.trainer.conftest import SIZES, losses

PROGRAM = """
import os, signal, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback
from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
from optimum_neuron.trainer import checkpoints

output_dir, moment, resume = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Killer(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **keywords):
        if moment == "step" and state.global_step == 4:
            die()

class Killed(NeuronTrainer):
    def _save_optimizer_and_scheduler(self, folder):
        super()._save_optimizer_and_scheduler(folder)
        if moment == "checkpoint" and self.state.global_step == 4:
            die()

if moment == "rename":
    finish = checkpoints.write_bytes
    def write_bytes(path, data, *, error):
        finish(path, data, error=error)
        if '"step": 4' in data.decode():
            die()
    checkpoints.write_bytes = write_bytes

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
arguments = NeuronTrainingArguments(output_dir=output_dir, max_steps=6, logging_steps=1, learning_rate=1e-2,
    per_device_train_batch_size=4, disable_tqdm=True, report_to=[], save_steps=2)
data = [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(32)]
trainer = Killed(model, arguments, train_dataset=data, callbacks=[Killer()])
trainer.train(resume_from_checkpoint=resume == "resume")
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
"""


@pytest.fixture(scope="module")
def run(built):
    def start(output_dir: Path, moment: str, *, resume: bool = False) -> subprocess.CompletedProcess[str]:
        words = [str(output_dir), moment, "resume" if resume else "anew"]
        return subprocess.run(
            [sys.executable, "-c", f"SIZES = {SIZES}\n{PROGRAM}", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"},
        )

    return start


@pytest.fixture(scope="module")
def uninterrupted(run, tmp_path_factory):
    """The losses that a run prints that nobody kills."""
    whole = run(tmp_path_factory.mktemp("whole"), "never")
    assert whole.returncode == 0, whole.stderr
    return whole.stdout.splitlines()[-1]


@pytest.mark.parametrize(("moment", "last"), [("step", 4), ("checkpoint", 2), ("rename", 4)])
def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(run, uninterrupted, tmp_path, moment, last):
    killed = run(tmp_path / "killed", moment)
    assert killed.returncode == -signal.SIGKILL
    visible = {path.name for path in (tmp_path / "killed").glob("checkpoint-*")}
    assert visible == ({"checkpoint-2", "checkpoint-4"} if moment == "step" else {"checkpoint-2"})
    resumed = run(tmp_path / "killed", "never", resume=True)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[-1] == uninterrupted
    # What was whole and only not moved yet is used: nothing is lost then.
    logged = [line for line in resumed.stdout.splitlines() if line.startswith("{'loss'")]
    assert len(logged) == 6 - last
    assert not (tmp_path / "killed" / checkpoints.STAGING).exists()


def test_killed_from_outside_at_any_moment(run, built, tmp_path):
    words = [sys.executable, "-c", f"SIZES = {SIZES}\n{PROGRAM}", str(tmp_path / "out"), "never", "anew"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        while process.poll() is None and not (tmp_path / "out" / "checkpoint-2").exists():
            time.sleep(0.001)
    finally:
        process.kill()
        process.wait()
    for folder in (tmp_path / "out").glob("checkpoint-*"):
        assert checkpoints.defect(folder) is None, folder
    assert run(tmp_path / "out", "never", resume=True).returncode == 0


@pytest.fixture
def saved(train, tmp_path, llama, sentences):
    """A folder with checkpoints 2 and 4."""
    train(llama, sentences, save_strategy="steps", save_steps=2)
    return tmp_path / "out"


def test_the_marker_lists_every_file(saved):
    marker = json.loads((saved / "checkpoint-4" / checkpoints.MARKER).read_text())
    assert marker["step"] == 4 and marker["layout"]["tensor_parallel_size"] == 1
    assert set(marker["files"]) | {checkpoints.MARKER} == {path.name for path in (saved / "checkpoint-4").iterdir()}


def missing(folder):
    (folder / "optimizer.pt").unlink()


def cut_off(folder):
    os.truncate(folder / "model.safetensors", 100)


def half_a_marker(folder):
    (folder / checkpoints.MARKER).write_text("{")


@pytest.mark.parametrize(
    ("damage", "told"),
    [(missing, "optimizer.pt is missing"), (cut_off, "has 100 bytes instead of"), (half_a_marker, "cannot be read")],
)
def test_a_damaged_checkpoint_is_passed_over_and_refused_by_name(train, saved, llama, sentences, caplog, damage, told):
    damage(saved / "checkpoint-4")
    assert checkpoints.last_complete(saved).value == saved / "checkpoint-2"
    with pytest.raises(ArtifactError, match=f"(?s){told}.*resume from .*checkpoint-2"):
        train(llama, sentences, resume=str(saved / "checkpoint-4"))
    trainer = train(llama, sentences, resume=True)
    assert trainer.state.global_step == 4 and told in caplog.text


def test_upstreams_checkpoints_are_whole_when_their_last_file_is(train, tmp_path, llama, sentences):
    whole = train(llama, sentences, upstream=True, save_strategy="steps", save_steps=2)
    folder = tmp_path / "out" / "checkpoint-2"
    assert checkpoints.defect(folder) is None
    assert losses(train(llama, sentences, resume=str(folder))) == pytest.approx(losses(whole), abs=1e-4)
    state = folder / "trainer_state.json"
    state.write_text(state.read_text()[:50])
    assert checkpoints.defect(folder) == "trainer_state.json breaks off"
    state.unlink()
    assert "written last, is missing" in checkpoints.defect(folder)


def test_nothing_to_resume(train, tmp_path, llama, sentences):
    with pytest.raises(ArtifactError, match="has no folder checkpoint-<step>"):
        train(llama, sentences, resume=True)
    with pytest.raises(ArtifactError, match="there is no such folder"):
        train(llama, sentences, resume=str(tmp_path / "nowhere"))


def test_a_checkpoint_of_another_layout(train, saved, llama, sentences):
    path = saved / "checkpoint-4" / checkpoints.MARKER
    marker = json.loads(path.read_text())
    marker["layout"]["tensor_parallel_size"] = 2
    path.write_text(json.dumps(marker))
    with pytest.raises(ArtifactError, match="with tensor_parallel_size=1: a checkpoint of tensor_parallel_size=2"):
        train(llama, sentences, resume=str(saved / "checkpoint-4"))


@pytest.mark.parametrize("optim", ["sgd", "adafactor"])
def test_a_checkpoint_of_another_optimizer(train, saved, llama, sentences, optim):
    with pytest.raises(ArtifactError, match="(?i)checkpoint-2 with (sgd|adafactor): a checkpoint of AdamW"):
        train(llama, sentences, resume=str(saved / "checkpoint-2"), optim=optim)
    # The same states, in one kernel.
    assert train(llama, sentences, resume=str(saved / "checkpoint-2"), optim="adamw_torch_fused").state.global_step == 4


def test_a_folder_of_runs_in_place_of_a_checkpoint(train, saved, llama, sentences):
    with pytest.raises(ArtifactError, match="To fix it: resume from .*out/checkpoint-4"):
        train(llama, sentences, resume=str(saved))


def test_a_checkpoint_of_another_model(train, saved, bert, llama, sentences, classes):
    from transformers import LlamaConfig, LlamaForCausalLM

    with pytest.raises(ModelError, match="those of another model.*missing: bert.embeddings"):
        train(bert, classes, resume=str(saved / "checkpoint-4"))
    wider = LlamaForCausalLM(LlamaConfig(**{**SIZES, "intermediate_size": 80}, num_key_value_heads=2))
    with pytest.raises(ModelError, match=r"6 of another shape: model.layers.0.mlp.gate_proj.weight \(64, 32\)"):
        train(wider, sentences, resume=str(saved / "checkpoint-4"))


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "t5", "roberta"])
def test_a_models_own_checkpoint_is_its_own(train, tmp_path, model_type):
    """Tied weights and weights that are saved under other names are no differences."""
    from transformers import (
        CONFIG_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
        RobertaConfig,
        T5Config,
    )

    from tests.tiny import tiny_config

    torch.manual_seed(0)
    if model_type == "t5":
        sizes = dict(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
        config = T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0)
        model = AutoModelForSeq2SeqLM.from_config(config)
    elif model_type == "roberta":
        model = AutoModelForMaskedLM.from_config(RobertaConfig(**SIZES))
    else:
        assert model_type in CONFIG_MAPPING
        # Sorted experts are counted with `histc` of integers, which the CPU's kernels have not.
        options = {"experts_implementation": "eager"} if model_type == "mixtral" else {}
        model = AutoModelForCausalLM.from_config(tiny_config(model_type), **options)
    rows = [{"input_ids": torch.arange(8) + i + 4, "labels": torch.arange(8) + i + 4} for i in range(32)]
    whole = train(model, rows, save_strategy="steps", save_steps=2)
    resumed = train(model, rows, resume=str(tmp_path / "out" / "checkpoint-2"))
    assert losses(whole) == losses(resumed)


def test_a_checkpoint_is_replaced_whole(saved, tmp_path):
    staged = saved / checkpoints.STAGING / "checkpoint-4"
    shutil.copytree(saved / "checkpoint-2", staged)
    checkpoints.finish(staged, saved / "checkpoint-4", step=4, layout={}, optimizer="AdamW")
    state = json.loads((saved / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["global_step"] == 2 and not (saved / checkpoints.STAGING).exists()


def test_old_checkpoints_are_deleted(train, tmp_path, llama, sentences):
    train(llama, sentences, save_strategy="steps", save_steps=1, save_total_limit=2)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"checkpoint-3", "checkpoint-4"}
    assert checkpoints.last_complete(tmp_path / "out").value.name == "checkpoint-4"


def test_a_model_of_16_bits_keeps_its_master_weights(train, tmp_path, llama, sentences):
    narrow = copy.deepcopy(llama).bfloat16()
    train(narrow, sentences, save_strategy="steps", save_steps=2)
    state = torch.load(tmp_path / "out" / "checkpoint-4" / "optimizer.pt", weights_only=True)
    masters = state["master_weights"].values()
    assert len(masters) == len(list(narrow.parameters())) and {m.dtype for m in masters} == {torch.float32}
