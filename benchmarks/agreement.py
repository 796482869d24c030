"""Numbers, not time: greedy tokens against float32, and agreement over real text in bf16."""

from __future__ import annotations

from pathlib import Path

from . import contenders
from .harness import Row, Settings

NUM_GREEDY = 128
TEXT = Path(__file__).parents[1] / "LICENSE"
"""Real English text that is always there."""


def run(settings: Settings) -> list[Row]:
    """Compare with transformers in float32."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(contenders.folder(settings.model))
    reference = contenders.eager(settings.model, "float32")
    length = settings.sequence_length
    exact = contenders.ours(settings.model, length, "float32")
    prompts = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "The three laws of motion"]
    equal = 0
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        options = {"max_new_tokens": NUM_GREEDY, "min_new_tokens": NUM_GREEDY, "do_sample": False, "pad_token_id": 2}
        with torch.no_grad():
            equal += int((exact.generate(**inputs, **options) == reference.generate(**inputs, **options)).sum())
        equal -= inputs["input_ids"].shape[1]
    total = len(prompts) * NUM_GREEDY
    rows = [Row(what="greedy tokens equal to fp32, auto_cast none", value=100 * equal / total, unit="%",
                note=f"{total} tokens of {len(prompts)} prompts; bar: 100")]  # fmt: skip
    ids = tokenizer(TEXT.read_text(), return_tensors="pt")["input_ids"]
    windows = ids[:, : ids.shape[1] // length * length].view(-1, length)
    narrow = contenders.ours(settings.model, length)
    hits = eager_hits = 0
    for window in windows:
        with torch.no_grad():
            wanted = reference(window[None]).logits.argmax(-1)
            hits += int((narrow(window[None]).logits.argmax(-1) == wanted).sum())
            eager = contenders.eager(settings.model, "bfloat16")
            eager_hits += int((eager(window[None]).logits.argmax(-1) == wanted).sum())
    note = f"teacher-forced over {windows.numel()} tokens of LICENSE"
    return rows + [
        Row(what="top-1 agreement of ours in bf16 with fp32", value=100 * hits / windows.numel(), unit="%",
            note=f"{note}; bar: 98"),
        Row(what="the same for transformers eager in bf16", value=100 * eager_hits / windows.numel(), unit="%",
            note=note),
    ]  # fmt: skip
