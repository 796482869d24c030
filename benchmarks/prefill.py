"""Prefill: milliseconds for a prompt of 512 tokens, against transformers eager."""

from __future__ import annotations

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

NUM_TOKENS = 512


def run(settings: Settings) -> list[Row]:
    """Measure the first forward pass, logits of the last token only, in turn."""
    import torch

    ids = torch.randint(100, 10000, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(0))
    models = {
        "ours, bf16": contenders.ours(settings.model, max(settings.sequence_length, NUM_TOKENS)),
        "ours, fp32": contenders.ours(settings.model, max(settings.sequence_length, NUM_TOKENS), "float32"),
        "transformers eager, fp32": contenders.eager(settings.model, "float32"),
        "transformers eager, bf16": contenders.eager(settings.model, "bfloat16"),
    }

    def measure(model):  # type: ignore[no-untyped-def]
        def once() -> float:
            with torch.no_grad():
                return 1e3 * seconds(lambda: model(ids, logits_to_keep=1, use_cache=True))

        return once

    figures = in_turn({name: measure(model) for name, model in models.items()}, settings.rounds)
    rows = rows_of(figures, "ms", note=f"prompt of {NUM_TOKENS} tokens, batch 1")
    fp32 = figures["transformers eager, fp32"]
    faster = [min(pair) for pair in zip(fp32, figures["transformers eager, bf16"], strict=True)]
    rows.append(ratio("eager in its better dtype over ours, bf16", faster, figures["ours, bf16"], note="bar: 1.0"))
    rows.append(ratio("eager fp32 over ours, fp32", fp32, figures["ours, fp32"], note="bar: 1.0"))
    return rows
