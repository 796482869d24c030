"""Starting up: imports, help, a load from a warm cache, and its peak memory."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from . import contenders
from .harness import Row, Settings, in_turn, rows_of, seconds

# Not getrusage: its maximum starts with that of the process that started this one.
_PEAK = "def peak():\n    return 1024 * int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"

_LOAD = _PEAK + (
    "import sys, time\n"
    "start = time.perf_counter()\n"
    "from optimum_neuron import NeuronModelForCausalLM\n"
    "import transformers, torch\n"
    "from optimum_neuron.modeling.causal_lm import NeuronModelForCausalLM\n"
    "imported = time.perf_counter()\n"
    "model = NeuronModelForCausalLM.from_pretrained(sys.argv[1])\n"
    "loaded = time.perf_counter()\n"
    "ids = torch.ones(1, 8, dtype=torch.long)\n"
    "model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, pad_token_id=2)\n"
    "need = model.loaded.need\n"
    "print('load', loaded - imported, 'all', loaded - start,\n"
    "      'peak', peak() / need.weights,\n"
    "      'mapped', model.prepared.bound.weights.mapped_bytes / need.weights)\n"
)

_PEAK_OF_IMPORTS = _PEAK + (
    "import torch, transformers\n"
    "from optimum_neuron.modeling.causal_lm import NeuronModelForCausalLM\n"
    "print('peak', peak())\n"
)


def run(settings: Settings) -> list[Row]:
    """Measure fresh processes."""
    python = sys.executable
    figures = in_turn(
        {
            "python -c pass": lambda: _process([python, "-c", "pass"]),
            "import optimum_neuron, process": lambda: _process([python, "-c", "import optimum_neuron"]),
            "optimum-cli export neuron --help": lambda: _process(
                [python, "-m", "optimum.commands.optimum_cli", "export", "neuron", "--help"]
            ),
        },
        settings.rounds,
    )
    rows = rows_of(figures, "s", note="whole process; bars: import 0.15 s over python, help 0.5 s")
    with tempfile.TemporaryDirectory() as work:
        exported = Path(work) / "exported"
        model = contenders.ours(settings.model, settings.sequence_length)
        model.save_pretrained(exported)
        weights = model.loaded.need.weights
        del model
        contenders.forget()  # the processes below need a core
        found = [_run(_LOAD, str(exported)) for _ in range(settings.rounds)]
        imports = float(_run(_PEAK_OF_IMPORTS)["peak"])
    rows += rows_of({"from_pretrained of an exported folder": [f["load"] for f in found]}, "s", note="bar: 3 s")
    rows += rows_of({"the same with imports of torch and transformers": [f["all"] for f in found]}, "s")
    rows += rows_of({"weights that are views of the file": [100 * f["mapped"] for f in found]}, "%")
    above = [f["peak"] - imports / weights for f in found]
    rows += rows_of({"peak memory above the imports, over weights": above}, "x", note="bar: 1.5; includes KV cache")
    rows += rows_of({"peak memory of the whole process, over weights": [f["peak"] for f in found]}, "x")
    return rows


def _process(command: list[str]) -> float:
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def _run(program: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {name: float(value) for name, value in re.findall(r"([a-z]+) ([\d.e+-]+)", done.stdout)}
