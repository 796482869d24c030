"""Fine-tuning with `NeuronTrainer` and with transformers' `Trainer` on the CPU: whole model and LoRA, eager, compiled.

Every contender trains in a separate process, so that its peak memory is separate, and waits for its turn between steps:
one of them computes at a time. The process is this file.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .contenders import folder
from .harness import Row, Settings, in_turn, ratio, rows_of

NUM_STEPS = 1
"""Training steps of a turn."""
BATCH_SIZE = 1
MODES = ("eager", "compiled")
WHOSE = ("ours", "Trainer on cpu")


def run(settings: Settings) -> list[Row]:
    """Measure in turn, first whole-model training, then LoRA."""
    return [row for kind in ("full", "lora") for row in _compare(settings, kind)]


def _compare(settings: Settings, kind: str) -> list[Row]:
    names = [(whose, mode) for mode in MODES for whose in WHOSE]
    workers = {f"{kind}, {whose}, {mode}": _Worker(settings, kind, whose, mode) for whose, mode in names}
    try:
        figures = in_turn({name: worker.turn for name, worker in workers.items()}, settings.rounds)
        memory = {name: worker.end() for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
    note = f"batch {BATCH_SIZE}, {settings.sequence_length} tokens, float32, AdamW"
    rows = rows_of(figures, "tok/s", note=note)
    rows += rows_of({f"{name}, peak memory": [size] for name, size in memory.items()}, "MiB", note="resident")
    for mode, bar in zip(MODES, ("bar: 1.0", "bar: 1.25"), strict=True):
        ours = f"{kind}, ours, {mode}"
        for other in MODES:
            theirs = f"{kind}, Trainer on cpu, {other}"
            what = f"{kind}, ours {mode} over Trainer {other}"
            rows.append(ratio(what, figures[ours], figures[theirs], note=bar if mode == other else ""))
        rows.append(
            ratio(
                f"{kind}, memory of ours over Trainer's, {mode}",
                [memory[ours]],
                [memory[f"{kind}, Trainer on cpu, {mode}"]],
                note="bar: 1.0",
            )
        )
    return rows


class _Worker:
    """A process that trains on request."""

    def __init__(self, settings: Settings, kind: str, whose: str, mode: str) -> None:
        words = [str(folder(settings.model)), str(settings.sequence_length), kind, whose, mode]
        num_steps = str(NUM_STEPS * (settings.rounds + 1))
        command = [sys.executable, "-m", "benchmarks.training", *words, num_steps]
        # Each of ours has a separate core.
        core = {"NEURON_RT_VISIBLE_CORES": str(MODES.index(mode))}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **core}
        )

    def _ask(self) -> dict[str, float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"seconds"'):
                return json.loads(line)
        raise RuntimeError(f"a contender ended with code {self._process.wait()}")

    def turn(self) -> float:
        """Tokens per second of one turn."""
        answer = self._ask()
        return answer["tokens"] / answer["seconds"]

    def end(self) -> float:
        """Let it finish; return its peak resident memory, MiB."""
        return self._ask()["peak_mib"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _trainer(path: str, num_tokens: int, kind: str, whose: str, mode: str, **options: Any) -> Any:
    import torch
    import transformers

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

    ours = whose == WHOSE[0]
    arguments = (NeuronTrainingArguments if ours else transformers.TrainingArguments)(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH_SIZE,
        torch_compile=mode == "compiled",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=not ours,
        **options,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if kind == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.randint(0, model.config.vocab_size, (64, num_tokens))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    return (NeuronTrainer if ours else transformers.Trainer)(model, arguments, train_dataset=rows)


def _main() -> None:
    from transformers import TrainerCallback

    path, num_tokens, kind, whose, mode, num_steps = sys.argv[1:]
    say: Callable[[dict[str, float]], None] = lambda answer: print(json.dumps(answer), flush=True)  # noqa: E731

    class Turns(TrainerCallback):
        start = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            if state.global_step % NUM_STEPS == 0:
                sys.stdin.readline()
                self.start = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            if state.global_step % NUM_STEPS == 0:
                seconds = time.perf_counter() - self.start
                say({"seconds": seconds, "tokens": NUM_STEPS * BATCH_SIZE * int(num_tokens)})

    trainer = _trainer(path, int(num_tokens), kind, whose, mode, max_steps=int(num_steps))
    trainer.add_callback(Turns())
    trainer.train()
    sys.stdin.readline()
    say({"seconds": 0.0, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


if __name__ == "__main__":
    _main()
