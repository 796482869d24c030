"""Runs of a trainer that are killed: `python -m tests.trainer.killed` imports once, and forks a process for each run.

A request is a JSON list of a folder, a moment to die at ("step", "checkpoint", "rename" or "never"), and whether to
resume. The answers are the process id, then its exit code and the losses that it logged.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from optimum_neuron import NeuronTrainer
from optimum_neuron.trainer import checkpoints
from tests.device.conftest import make_llama
from tests.trainer.conftest import losses, make_trainer

NUM_STEPS = 6


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(output_dir: str, moment: str, resume: bool) -> None:
    """Train six steps with a checkpoint at each second one, and die at a moment of the fourth step."""

    class Killer(TrainerCallback):
        num_steps = 0

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            self.num_steps += 1
            if moment == "step" and state.global_step == 4:
                die()

    class Killed(NeuronTrainer):
        def _save_optimizer_and_scheduler(self, folder: str) -> None:
            super()._save_optimizer_and_scheduler(folder)
            if moment == "checkpoint" and self.state.global_step == 4:
                die()

    if moment == "rename":
        write = checkpoints.write_bytes

        def write_bytes(path: Path, data: bytes, *, error: Any) -> None:
            write(path, data, error=error)
            if '"step": 4' in data.decode():
                die()

        checkpoints.write_bytes = write_bytes
    rows = [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(32)]
    killer = Killer()
    options = dict(max_steps=NUM_STEPS, save_strategy="steps", save_steps=2, callbacks=[killer])
    trainer = make_trainer(output_dir, make_llama(), rows, kind=Killed, **options)
    trainer.train(resume_from_checkpoint=resume)
    Path(output_dir, "losses.json").write_text(json.dumps({"losses": losses(trainer), "num_steps": killer.num_steps}))


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if process == 0:
            os.dup2(2, 1)  # logs are no answers
            train(*request)
            os._exit(0)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
