"""Check that memory, tensors, file descriptors, and threads do not grow over many loads, calls, and training steps.

The benchmark takes half an hour, so it runs only when it is named: `python -m benchmarks soak`. `--quick` uses a tiny
random model and a tenth of the calls; `--optlevel 1` needs no C++ compiler.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.footprint import Footprint, footprint

from . import contenders
from .harness import Row, Settings

NUM_SAMPLES = 6
"""Times that each part is sampled, the first time after its warm-up."""
NUM_NEW, NUM_PROMPT = 4, 16
"""Tokens of a generated text and of its prompt."""
MAX_GROWTH_BYTES = 1024
"""Growth of resident memory per call that counts as flat."""
SLACK_BYTES = 1024 * 1024
"""Growth of resident memory over a whole part that counts as flat: the heap moves by this much between samples."""

After = Callable[[], None]
"""Callback of a part after each of its calls."""
Part = Callable[[int, After], None]
"""Makes a number of calls."""


def run(settings: Settings) -> list[Row]:
    """Soak every part in turn, in this process."""
    scale = 10 if settings.quick else 1
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as work:
        model, vocab_size = _model(settings, Path(work))
        exported = Path(work) / "exported"
        model.save_pretrained(exported)
        _save_tokenizer(settings, Path(work))
        parts: dict[str, tuple[int, Part]] = {
            "load and unload": (100, lambda n, after: _loads(exported, n, after)),
            "generate": (1000, lambda n, after: _generates(model, vocab_size, n, after)),
            "pipeline": (500, lambda n, after: _pipeline(model, Path(work) / "tokenizer", n, after)),
            "Trainer step": (300, lambda n, after: _trains(Path(work) / "trained", n, after)),
            "traced model": (1000, lambda n, after: _traced(settings, n, after)),
        }
        for name, (num_calls, part) in parts.items():
            print(f"soaking {name} ...", file=sys.stderr)
            found = soak(name, part, num_calls // scale)
            for row in found:
                print(f"  {row.what}: {row.note}", file=sys.stderr)
            rows += found
    return rows


def soak(name: str, part: Part, num_calls: int) -> list[Row]:
    """Warm a part up with a fifth of its calls, sample it at equal distances, and judge it.

    Args:
        name: of the part.
        part: makes the calls.
        num_calls: calls after the warm-up.
    """
    num_warm, distance = num_calls // 5, max(1, num_calls // (NUM_SAMPLES - 1))
    samples: list[Footprint] = []
    counter = itertools.count(1)

    def after() -> None:
        num_done = next(counter) - num_warm
        if num_done >= 0 and num_done % distance == 0:
            samples.append(footprint())

    part(num_warm + distance * (NUM_SAMPLES - 1), after)
    return rows_of_samples(f"{name}, {distance * (NUM_SAMPLES - 1)} calls", samples, distance)


def rows_of_samples(name: str, samples: Sequence[Footprint], distance: int) -> list[Row]:
    """Growth for each call, with the first and the last sample.

    Memory is flat if it grows by less than `MAX_GROWTH_BYTES` per call or `SLACK_BYTES` in total. Every other count is
    flat if the last sample is not larger than the first.
    """
    rows = []
    for field, unit in (
        ("resident_bytes", "B/call"),
        ("num_tensors", "1/call"),
        ("num_descriptors", "1/call"),
        ("num_threads", "1/call"),
    ):
        counts = [getattr(sample, field) for sample in samples]
        slope = statistics.linear_regression(range(0, distance * len(counts), distance), counts).slope
        growth = counts[-1] - counts[0]
        if field == "resident_bytes":
            flat = slope < MAX_GROWTH_BYTES or growth < SLACK_BYTES
            ends = f"{counts[0] / 2**20:.1f} to {counts[-1] / 2**20:.1f} MiB"
        else:
            flat, ends = growth <= 0, f"{counts[0]} to {counts[-1]}"
        what = f"{name}: {field.removeprefix('num_').replace('_bytes', ' memory')}"
        rows.append(Row(what=what, value=slope, unit=unit, note=f"{ends}, {'flat' if flat else 'GROWS'}"))
    return rows


def _model(settings: Settings, work: Path) -> tuple[Any, int]:
    """The compiled model and its vocabulary."""
    from optimum_neuron import NeuronModelForCausalLM

    if settings.quick:
        from tests.tiny import NUM_BYTE_TOKENS, SHAPES, save_tiny

        folder = save_tiny(work / "tiny", "llama", vocab_size=NUM_BYTE_TOKENS)
        options = SHAPES | {"batch_size": 1, "optlevel": settings.optlevel, "wait_for_host_code": True}
        return NeuronModelForCausalLM.from_pretrained(folder, export=True, **options), NUM_BYTE_TOKENS
    model = contenders.ours(settings.model, settings.sequence_length, optlevel=settings.optlevel)
    return model, model.config.vocab_size


def _save_tokenizer(settings: Settings, work: Path) -> None:
    from transformers import AutoTokenizer

    from tests.tiny import save_tokenizer

    if settings.quick:
        save_tokenizer(work / "tokenizer")
    else:
        AutoTokenizer.from_pretrained(contenders.folder(settings.model)).save_pretrained(work / "tokenizer")


def _loads(exported: Path, num_calls: int, after: After) -> None:
    from optimum_neuron import NeuronModelForCausalLM

    for _ in range(num_calls):
        model = NeuronModelForCausalLM.from_pretrained(exported)
        del model
        after()


def _generates(model: Any, vocab_size: int, num_calls: int, after: After) -> None:
    import torch

    for _ in range(num_calls):
        ids = torch.randint(3, vocab_size, (1, NUM_PROMPT))
        options = {"max_new_tokens": NUM_NEW, "do_sample": False, "pad_token_id": 0}
        model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        after()


def _pipeline(model: Any, tokenizer: Path, num_calls: int, after: After) -> None:
    from optimum_neuron import pipeline

    generator = pipeline("text-generation", model=model, tokenizer=str(tokenizer))
    for number in range(num_calls):
        generator(f"Number {number}", max_new_tokens=NUM_NEW, do_sample=False)
        after()


def _traced(settings: Settings, num_calls: int, after: After) -> None:
    import torch

    from optimum_neuron.tracing import trace, wait_for_host_code

    net = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).eval()
    model = trace(net, torch.rand(4, 256), compiler_args=f"-O{settings.optlevel}")
    wait_for_host_code(model)
    for _ in range(num_calls):
        model(torch.rand(4, 256))
        after()


def _trains(work: Path, num_calls: int, after: After) -> None:
    import torch
    from transformers import LlamaForCausalLM, TrainerCallback

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments
    from tests.tiny import VOCABULARY, tiny_config

    class Samples(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            after()

    arguments = NeuronTrainingArguments(
        output_dir=str(work),
        max_steps=num_calls,
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    ids = torch.randint(3, VOCABULARY, (64, 32))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    trainer = NeuronTrainer(LlamaForCausalLM(tiny_config("llama")), arguments, train_dataset=rows)
    trainer.add_callback(Samples())
    trainer.train()
