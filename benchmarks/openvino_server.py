"""A decoder in OpenVINO, measured by another Python: optimum-intel does not run with this package's transformers.

`--openvino_python PYTHON` names the Python of an environment with `optimum-intel`. This file is both sides: `Server`
here starts it there as a script, which loads a checkpoint, reads one measurement from each line, and prints its figure.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Server:
    """One checkpoint in OpenVINO in a separate process; `close` ends it."""

    def __init__(self, python: str, folder: Path, dtype: str) -> None:
        """Start the process; `dtype` is "bf16" or "f32"."""
        self._process = subprocess.Popen(
            [python, __file__, str(folder), dtype], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def decode(self, batch_size: int, num_prompt: int, num_new: int) -> float:
        """Steps per second after the first token, greedy."""
        return self._measure(what="decode", batch_size=batch_size, num_prompt=num_prompt, num_new=num_new)

    def prefill(self, batch_size: int, num_prompt: int) -> float:
        """Milliseconds from a prompt to its first token."""
        return self._measure(what="prefill", batch_size=batch_size, num_prompt=num_prompt)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _measure(self, **measurement: Any) -> float:
        assert self._process.stdin is not None
        print(json.dumps(measurement), file=self._process.stdin, flush=True)
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the OpenVINO process ended with code {self._process.wait()}; its message is above")
        return line


def _serve(folder: str, dtype: str) -> None:
    import torch
    from optimum.intel import OVModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        hint = {"INFERENCE_PRECISION_HINT": dtype, "PERFORMANCE_HINT": "LATENCY"}
        model = OVModelForCausalLM.from_pretrained(folder, export=True, load_in_8bit=False, ov_config=hint)
        model.generation_config.eos_token_id = None
    print("ready", file=answers, flush=True)

    class Clock(BaseStreamer):
        """The times of the prompt and of each token."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            pass

    for line in sys.stdin:
        measurement = json.loads(line)
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(100, 10000, (measurement["batch_size"], measurement["num_prompt"]), generator=generator)
        num_new = measurement.get("num_new", 1)
        options = {"max_new_tokens": num_new, "do_sample": False, "pad_token_id": 2}
        clock = Clock()
        model.generate(ids, attention_mask=torch.ones_like(ids), streamer=clock, **options)
        prompt, first, *_, last = [*clock.times, clock.times[-1]]
        figure = 1e3 * (first - prompt) if measurement["what"] == "prefill" else (num_new - 1) / (last - first)
        print(figure, file=answers, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
