"""The first answer: cold exports, a cold compile of host code, the demo, and decoding before anything is compiled."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

from . import contenders, decode, fresh
from .harness import Row, Settings, in_turn, ratio, rows_of

_COMPILE = (
    "import sys, time; from pathlib import Path\n"
    "from optimum_neuron.compiler.lower.lower import lower\n"
    "from optimum_neuron.compiler.neff import open_neff\n"
    "from optimum_neuron.compiler.package import read_program\n"
    "import torch, transformers\n"
    "with open_neff(Path(sys.argv[1], 'model.neuron')) as neff: program = read_program(neff)\n"
    "start = time.perf_counter()\n"
    "host = lower(program, optlevel='2', mode='wait')\n"
    "print(time.perf_counter() - start, host.num_compiled)\n"
)


def run(settings: Settings) -> list[Row]:
    """Measure fresh processes with empty caches, and a model without host code against transformers in turn."""
    rows: list[Row] = []
    length = str(settings.sequence_length)
    for model, bar, *options in (
        (settings.model, 15, "--sequence_length", length),
        ("all-minilm-l6-v2", 8, "--batch_size", "1", "--sequence_length", "128"),
    ):
        figures = in_turn(
            {f"cold export of {model}": functools.partial(fresh.export_s, model, *options)}, settings.rounds
        )
        rows += rows_of(figures, "s", note=f"whole process, validated; bar: {bar} s")
    with tempfile.TemporaryDirectory() as work:
        exported = Path(work) / "exported"
        contenders.ours(settings.model, settings.sequence_length, optlevel="1").save_pretrained(exported)
        compiled = [fresh.run([sys.executable, "-c", _COMPILE, str(exported)]).split() for _ in range(settings.rounds)]
    note = f"{compiled[0][1]} blocks, empty store; bar: 8 s"
    rows += rows_of({"cold compile of host code, waited for": [float(time) for time, _ in compiled]}, "s", note=note)
    demos = [json.loads(fresh.run(fresh.cli("neuron", "demo", "--json"))) for _ in range(settings.rounds)]
    for what, key, bar in (
        ("demo: first token after the command", "first_token_after_s", "bar: 15 s"),
        ("demo: full speed after the command", "full_speed_after_s", ""),
    ):
        rows += rows_of({what: [demo[key] for demo in demos]}, "s", note=bar)
    return rows + _decoding(settings)


def _decoding(settings: Settings) -> list[Row]:
    import torch

    ids = torch.randint(100, 10000, (1, decode.NUM_PROMPT), generator=torch.Generator().manual_seed(0))
    models = {
        "decode without host code, bf16": contenders.ours(settings.model, settings.sequence_length, optlevel="1"),
        "transformers eager, fp32": contenders.eager(settings.model, "float32"),
        "transformers eager, bf16": contenders.eager(settings.model, "bfloat16"),
    }
    rates = in_turn(
        {name: functools.partial(decode.tokens_per_s, model, ids) for name, model in models.items()}, settings.rounds
    )
    ours, *eager = rates.values()
    best = [max(pair) for pair in zip(*eager, strict=True)]
    return rows_of(rates, "token/s") + [
        ratio("ours over transformers eager in its better dtype", ours, best, note="bar: 1.0")
    ]
