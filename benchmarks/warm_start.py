"""First training steps of `torch.compile` with warm caches: backend "neuron" against Inductor on the CPU.

Each start is a new process that runs this file. Each contender has its own cache folder, which a warm-up round fills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .contenders import folder
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

CONTENDERS = {"neuron": "neuron", "cpu": "inductor"}
"""Devices, each with its backend."""
BATCH_SIZE = 1
BAR = "bar: at most 1.2"


def run(settings: Settings) -> list[Row]:
    """Measure fresh processes in turn: the first step, which loads compiled code, and the second."""
    with tempfile.TemporaryDirectory() as work:
        starts = {device: _Starts(settings, device, Path(work) / device) for device in CONTENDERS}
        figures = in_turn({device: start.measure for device, start in starts.items()}, settings.rounds)
    note = f"LoRA of {settings.model}, {BATCH_SIZE} x {settings.sequence_length} tokens, float32; a process each"
    ours, theirs = figures.values()
    extra = {
        device: [first - second for first, second in zip(figures[device], start.second_steps[1:], strict=True)]
        for device, start in starts.items()
    }
    names = {device: f"{device}, {backend}" for device, backend in CONTENDERS.items()}
    return [
        *rows_of({f"warm start, {names[device]}": values for device, values in figures.items()}, "s", note=note),
        *rows_of(
            {f"without a step, {names[device]}": v for device, v in extra.items()}, "s", note="first minus second"
        ),
        ratio("warm start, ours over cpu inductor", ours, theirs, note=BAR),
        ratio("without a step, ours over cpu inductor", extra["neuron"], extra["cpu"], note=BAR),
    ]


class _Starts:
    """Processes of one contender, with one cache."""

    def __init__(self, settings: Settings, device: str, cache: Path) -> None:
        words = [str(folder(settings.model)), str(settings.sequence_length), device]
        self._command = [sys.executable, "-m", "benchmarks.warm_start", *words]
        self._env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self._is_warm = False
        self.second_steps: list[float] = []
        """Seconds of the second step of each process."""

    def measure(self) -> float:
        """Seconds of the first step of a new process."""
        done = subprocess.run(self._command, check=True, stdout=subprocess.PIPE, text=True, env=self._env)
        answer = json.loads(done.stdout.splitlines()[-1])
        if self._is_warm and answer["num_misses"]:
            raise RuntimeError(f"a warm start compiled {answer['num_misses']} graphs: {' '.join(self._command)}")
        self._is_warm = True
        self.second_steps.append(answer["second_s"])
        return answer["first_s"]


def _main() -> None:
    path, num_tokens, device = sys.argv[1:]
    step = _training_step(path, int(num_tokens), device)
    answer = {"first_s": seconds(step), "second_s": seconds(step)}
    from torch._dynamo.utils import counters

    found = counters["aot_autograd"]
    print(json.dumps({**answer, "num_misses": found["autograd_cache_miss"] + found["autograd_cache_bypass"]}))


def _training_step(path: str, num_tokens: int, device: str) -> Callable[[], object]:
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    model = model.to(device).train()
    compiled = torch.compile(model, backend=CONTENDERS[device])
    ids = torch.randint(0, model.config.vocab_size, (BATCH_SIZE, num_tokens)).to(device)
    return lambda: compiled(input_ids=ids, labels=ids).loss.backward()


if __name__ == "__main__":
    _main()
