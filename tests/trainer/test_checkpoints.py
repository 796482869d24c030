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

import pytest
import torch
import transformers

from optimum_neuron.errors import ArtifactError, ModelError
from optimum_neuron.trainer import checkpoints
from tests.device.conftest import ROOT, SIZES, make_llama
from tests.raising import raises
from tests.tiny import tiny_config
from tests.trainer.conftest import losses, make_trainer
from tests.trainer.killed import NUM_STEPS


class Runs:
    """Processes of `killed.py`."""

    def __init__(self, server):
        self.server = server

    def start(self, output_dir, moment, resume=False):
        """Start a run and return the id of its process."""
        self.server.stdin.write(json.dumps([str(output_dir), moment, resume]) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self):
        return int(self.server.stdout.readline())

    def whole(self, output_dir, resume=False):
        """Return the log of an uninterrupted run."""
        self.start(output_dir, "never", resume)
        assert self.wait() == 0
        return json.loads((output_dir / "losses.json").read_text())


@pytest.fixture(scope="module")
def runs(built):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"}
    command = [sys.executable, "-m", "tests.trainer.killed"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as server:
        yield Runs(server)


@pytest.fixture(scope="module")
def uninterrupted(runs, tmp_path_factory):
    return runs.whole(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("moment", "last"), [("step", 4), ("checkpoint", 2), ("rename", 4)])
def test_killed_run_resumes_from_last_complete_checkpoint(runs, uninterrupted, tmp_path, moment, last):
    runs.start(tmp_path, moment)
    assert runs.wait() == -signal.SIGKILL
    visible = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert visible == ({"checkpoint-2", "checkpoint-4"} if moment == "step" else {"checkpoint-2"})
    resumed_run = runs.whole(tmp_path, resume=True)
    assert resumed_run["losses"] == uninterrupted["losses"]
    # A complete checkpoint that was not moved yet is used: nothing is lost then.
    assert resumed_run["num_steps"] == NUM_STEPS - last
    assert not (tmp_path / checkpoints.STAGING).exists()


def test_killed_from_outside_at_any_moment(runs, tmp_path):
    process = runs.start(tmp_path, "never")
    while not (tmp_path / "checkpoint-2").exists():
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    assert runs.wait() == -signal.SIGKILL
    for folder in tmp_path.glob("checkpoint-*"):
        assert checkpoints.defect(folder) is None, folder
    runs.whole(tmp_path, resume=True)


KILLED = """
import os, signal, sys, types
from optimum_neuron.trainer import saving

class Ending:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)

saving.shards.save_optimizer = lambda *arguments: None
states = {"large": list(range(100000)), "last": Ending()}
trainer = types.SimpleNamespace(
    _distributed=types.SimpleNamespace(whole=True), _named_masters=dict, model=None, optimizer=None,
    args=types.SimpleNamespace(should_save=True), lr_scheduler=types.SimpleNamespace(state_dict=lambda: states),
)
saving.WholeCheckpoints._save_optimizer_and_scheduler(trainer, sys.argv[1])
"""


@pytest.mark.full(days=3)
def test_killed_while_writing_scheduler_of_distributed_model(tmp_path):
    torch.save({"last_epoch": 3}, tmp_path / "scheduler.pt")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert torch.load(tmp_path / "scheduler.pt", weights_only=True) == {"last_epoch": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory, llama, sentences):
    folder = tmp_path_factory.mktemp("run")
    make_trainer(folder, llama, sentences, save_strategy="steps", save_steps=2).train()
    return folder


@pytest.fixture
def run_folder(run, tmp_path):
    """A folder with checkpoints 2 and 4."""
    return shutil.copytree(run, tmp_path / "out")


def test_marker_lists_every_file(run_folder):
    marker = json.loads((run_folder / "checkpoint-4" / checkpoints.MARKER).read_text())
    assert marker["step"] == 4 and marker["layout"]["tensor_parallel_size"] == 1
    assert set(marker["files"]) | {checkpoints.MARKER} == {
        path.name for path in (run_folder / "checkpoint-4").iterdir()
    }


DAMAGES = {
    "optimizer.pt is missing": lambda folder: (folder / "optimizer.pt").unlink(),
    "has 100 bytes instead of": lambda folder: os.truncate(folder / "model.safetensors", 100),
    "cannot be read": lambda folder: (folder / checkpoints.MARKER).write_text("{"),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_damaged_checkpoint_is_skipped_and_explicit_one_is_an_error(
    train, run_folder, llama, sentences, caplog, problem
):
    DAMAGES[problem](run_folder / "checkpoint-4")
    assert checkpoints.last_complete(run_folder).value == run_folder / "checkpoint-2"
    with raises(ArtifactError, newest=str(run_folder / "checkpoint-2")) as error:
        train(llama, sentences, resume=str(run_folder / "checkpoint-4"))
    assert problem in error.value.details["problem"]
    trainer = train(llama, sentences, resume=True)
    assert trainer.state.global_step == 4 and problem in caplog.text


def test_upstreams_checkpoints_are_whole_when_their_last_file_is(train, tmp_path, llama, sentences):
    full_run = train(llama, sentences, upstream=True, save_strategy="steps", save_steps=2)
    folder = tmp_path / "out" / "checkpoint-2"
    assert checkpoints.defect(folder) is None
    assert losses(train(llama, sentences, resume=str(folder))) == pytest.approx(losses(full_run), abs=1e-4)
    state = folder / "trainer_state.json"
    state.write_text(state.read_text()[:50])
    assert checkpoints.defect(folder) == "trainer_state.json breaks off"
    state.unlink()
    assert "written last, is missing" in checkpoints.defect(folder)


def test_no_checkpoint_to_resume(train, tmp_path, llama, sentences):
    with raises(ArtifactError, output_dir=str(tmp_path / "out")):
        train(llama, sentences, resume=True)
    with raises(ArtifactError, folder=str(tmp_path / "nowhere"), newest=None):
        train(llama, sentences, resume=str(tmp_path / "nowhere"))


def test_checkpoint_of_another_layout(train, run_folder, llama, sentences):
    path = run_folder / "checkpoint-4" / checkpoints.MARKER
    marker = json.loads(path.read_text())
    marker["layout"]["tensor_parallel_size"] = 2
    path.write_text(json.dumps(marker))
    with raises(ArtifactError, saved="tensor_parallel_size=2", present="tensor_parallel_size=1"):
        train(llama, sentences, resume=str(run_folder / "checkpoint-4"))


@pytest.mark.parametrize("optim", ["sgd", "adafactor"])
def test_checkpoint_of_another_optimizer(train, run_folder, llama, sentences, optim):
    with raises(ArtifactError, saved="AdamW"):
        train(llama, sentences, resume=str(run_folder / "checkpoint-2"), optim=optim)
    # The same states, in one kernel.
    assert (
        train(llama, sentences, resume=str(run_folder / "checkpoint-2"), optim="adamw_torch_fused").state.global_step
        == 4
    )


def test_folder_of_runs_in_place_of_checkpoint(train, run_folder, llama, sentences):
    with raises(ArtifactError, newest=str(run_folder / "checkpoint-4")):
        train(llama, sentences, resume=str(run_folder))


def test_checkpoint_of_another_model(train, run_folder, bert, llama, sentences, classes):
    folder = str(run_folder / "checkpoint-4")
    with raises(ModelError, folder=folder) as error:
        train(bert, classes, resume=folder)
    assert "bert.embeddings" in error.value.details["differences"]
    wider = make_llama(intermediate_size=80)
    with raises(ModelError, folder=folder) as error:
        train(wider, sentences, resume=folder)
    assert "model.layers.0.mlp.gate_proj.weight (64, 32)" in error.value.details["differences"]


@pytest.mark.full(days=4)
@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "t5", "roberta"])
def test_checkpoints_of_two_models_are_separate(train, tmp_path, model_type):
    """Tied weights and weights that are saved under other names are no differences."""
    torch.manual_seed(0)
    if model_type == "t5":
        sizes = dict(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
        config = transformers.T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0)
        model = transformers.T5ForConditionalGeneration(config)
    elif model_type == "roberta":
        model = transformers.RobertaForMaskedLM(transformers.RobertaConfig(**SIZES))
    else:
        # Sorted experts are counted with `histc` of integers, which the CPU's kernels have not.
        options = {"experts_implementation": "eager"} if model_type == "mixtral" else {}
        model = transformers.AutoModelForCausalLM.from_config(tiny_config(model_type), **options)
    rows = [{"input_ids": torch.arange(8) + i + 4, "labels": torch.arange(8) + i + 4} for i in range(32)]
    full_run = train(model, rows, save_strategy="steps", save_steps=2)
    resumed_run = train(model, rows, resume=str(tmp_path / "out" / "checkpoint-2"))
    assert losses(full_run) == losses(resumed_run)


def test_checkpoint_is_replaced_whole(run_folder, tmp_path):
    staged = run_folder / checkpoints.STAGING / "checkpoint-4"
    shutil.copytree(run_folder / "checkpoint-2", staged)
    checkpoints.finish(staged, run_folder / "checkpoint-4", step=4, layout={}, optimizer="AdamW")
    state = json.loads((run_folder / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["global_step"] == 2 and not (run_folder / checkpoints.STAGING).exists()


def test_old_checkpoints_are_deleted(train, tmp_path, llama, sentences):
    train(llama, sentences, save_strategy="steps", save_steps=1, save_total_limit=2)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"checkpoint-3", "checkpoint-4"}
    assert checkpoints.last_complete(tmp_path / "out").value.name == "checkpoint-4"


@pytest.mark.full(days=4)
def test_model_of_16_bits_keeps_its_master_weights(train, tmp_path, one_layer, sentences, no_compiler):
    narrow = copy.deepcopy(one_layer).bfloat16()
    train(narrow, sentences, save_strategy="steps", save_steps=2)
    state = torch.load(tmp_path / "out" / "checkpoint-4" / "optimizer.pt", weights_only=True)
    masters = state["master_weights"].values()
    assert len(masters) == len(list(narrow.parameters())) and {m.dtype for m in masters} == {torch.float32}
