"""Tensor parallelism: decode speed, resident memory, and tokens of a model on 1, 2, and 8 simulated cores.

Tokens are also compared on 6 cores, which divide neither the 9 heads of SmolLM2 nor its width evenly: heads are padded
on all of them.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

from . import contenders
from .decode import tokens_per_s
from .harness import Row, Settings, in_turn, ratio, rows_of

NUM_CORES = (1, 2, 8)
BARS = {2: 0.9, 8: 0.7}
NUM_CORES_OF_TOKENS = (1, 2, 6, 8)
MEMORY_BAR = 1.15
NUM_NEW = 512
"""Greedy tokens that are compared; their cache holds the prompt too."""
LENGTH_OF_TOKENS = 1024

_LOAD = (
    "import json, sys, torch\n"
    "from optimum_neuron import NeuronModelForCausalLM\n"
    "folder, sequence_length, num_cores, num_new = sys.argv[1], *map(int, sys.argv[2:])\n"
    "model = NeuronModelForCausalLM.from_pretrained(\n"
    "    folder, export=True, sequence_length=sequence_length, torch_dtype='float32', optlevel='1',\n"
    "    instance_type='inf2.48xlarge', tensor_parallel_size=num_cores, disable_validation=True)\n"
    "ids = torch.randint(100, 10000, (1, 32), generator=torch.Generator().manual_seed(0))\n"
    "model.generation_config.eos_token_id = None\n"
    "tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_new, do_sample=False,\n"
    "                        pad_token_id=2)\n"
    "resident = 1024 * int(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])\n"
    "print(json.dumps({'resident': resident, 'tokens': tokens[0].tolist()}))\n"
)


def run(settings: Settings) -> list[Row]:
    """Measure decode in turn, and one fresh process for each number of cores."""
    import torch

    ids = torch.randint(100, 10000, (1, 32), generator=torch.Generator().manual_seed(0))
    models = {n: contenders.ours(settings.model, settings.sequence_length, num_cores=n) for n in NUM_CORES}
    labels = {n: f"decode, bf16, {n} core{'s' if n > 1 else ''}" for n in NUM_CORES}
    rates = in_turn({labels[n]: functools.partial(tokens_per_s, models[n], ids) for n in NUM_CORES}, settings.rounds)
    rows = rows_of(rates, "token/s", note="one process computes all cores")
    for n, bar in BARS.items():
        rows.append(ratio(f"{n} cores over 1 core", rates[labels[n]], rates[labels[1]], note=f"bar: {bar}"))
    del models
    contenders.forget()
    processes = {n: _process(settings, n) for n in NUM_CORES_OF_TOKENS}
    first = processes[NUM_CORES[0]]
    for n, figures in processes.items():
        share, note = (
            figures["resident"] / first["resident"],
            f"{figures['resident'] / 2**20:.0f} MiB; bar: {MEMORY_BAR}",
        )
        rows.append(Row(what=f"resident memory over 1 core, fp32, -O1, {n} cores", value=share, unit="x", note=note))
    for n, figures in processes.items():
        equal = sum(a == b for a, b in zip(figures["tokens"][-NUM_NEW:], first["tokens"][-NUM_NEW:], strict=True))
        rows.append(Row(what=f"greedy tokens equal to 1 core, fp32, {n} cores", value=equal, unit=f"of {NUM_NEW}"))
    return rows


def _process(settings: Settings, num_cores: int) -> dict[str, Any]:
    """Resident memory of a process that has generated, and its tokens."""
    arguments = (contenders.folder(settings.model), LENGTH_OF_TOKENS, num_cores, NUM_NEW)
    command = [sys.executable, "-c", _LOAD, *map(str, arguments)]
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert isinstance(figures, dict)
    return figures
