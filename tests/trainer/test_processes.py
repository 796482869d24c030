"""Data parallel training with torchrun: the losses of one process, whole checkpoints, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.trainer.conftest import SIZES

PROGRAM = """
import json, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

options = json.loads(sys.argv[2])
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
model.to(getattr(torch, options.pop("dtype", "float32")))
resume = options.pop("resume", None)
arguments = NeuronTrainingArguments(output_dir=sys.argv[1], max_steps=4, logging_steps=1, learning_rate=1e-2,
    gradient_accumulation_steps=2, disable_tqdm=True, report_to=[], save_steps=2, **options)
rows = [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(32)]
trainer = NeuronTrainer(model, arguments, train_dataset=rows)
trainer.train(resume_from_checkpoint=resume)
if trainer.is_world_process_zero():
    print("LOSSES", json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
"""


@pytest.fixture
def run(built, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"SIZES = {SIZES}\n{PROGRAM}")

    def start(num_processes, folder, **options):
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(num_processes)]
        launcher = launcher if num_processes > 1 else []
        options["per_device_train_batch_size"] = 4 // num_processes
        return subprocess.run(
            [sys.executable, *launcher, str(program), str(tmp_path / folder), json.dumps(options)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"},
        )

    return start


def losses_of(done):
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOSSES")]
    return json.loads(line.removeprefix("LOSSES"))


def test_two_processes_train_as_one_and_resume(run, tmp_path):
    one, two = losses_of(run(1, "one")), losses_of(run(2, "two"))
    assert two == pytest.approx(one, abs=1e-4)
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"checkpoint-2", "checkpoint-4"}
    assert losses_of(run(2, "two", resume=str(tmp_path / "two" / "checkpoint-2"))) == two
    # Another number of processes goes on from it too.
    assert losses_of(run(1, "two", resume=str(tmp_path / "two" / "checkpoint-2"))) == pytest.approx(one, abs=1e-4)


@pytest.mark.parametrize("gradients", [True, False])
def test_master_weights_of_two_processes(run, tmp_path, gradients):
    options = {"dtype": "bfloat16", "optimizer_use_fp32_grad_acc": gradients}
    one, two = losses_of(run(1, "one", **options)), losses_of(run(2, "two", **options))
    assert two == pytest.approx(one, abs=0.02)
    assert losses_of(run(2, "two", resume=str(tmp_path / "two" / "checkpoint-2"), **options)) == two
