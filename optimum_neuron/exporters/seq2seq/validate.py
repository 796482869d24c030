"""Compare a compiled encoder-decoder with the original in float32: hidden states, first token, later tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..validate import SEED, OutputError, compare, default_tolerance, require_agreement
from .configuration import NeuronSeq2SeqConfig

if TYPE_CHECKING:
    from ...runtime.loaded import LoadedProgram

NUM_STEPS = 4
"""Tokens of a target that are compared."""


def validate_seq2seq(
    loaded: LoadedProgram, reference: Any, config: NeuronSeq2SeqConfig, *, atol: float | None = None
) -> list[OutputError]:
    """Run random sources, the last one a quarter shorter, and random targets through both.

    Args:
        loaded: the compiled program with the original's weights.
        reference: the transformers model in float32.
        config: complete configuration.
        atol: absolute tolerance; None derives it from the arithmetic.

    Raises:
        ValidationError: a result is past its tolerance; its statistics are in the message.
    """
    errors = []
    for bucket in config.source_buckets:
        errors += _compared(loaded, reference, config, bucket, atol)
    return require_agreement(errors, lambda failed: f"the first is {failed[0].output}")


def _compared(
    loaded: LoadedProgram, reference: Any, config: NeuronSeq2SeqConfig, bucket: int, atol: float | None
) -> list[OutputError]:
    generator = torch.Generator().manual_seed(SEED)
    rows, num_steps = config.batch_size, min(NUM_STEPS, config.num_target_slots)
    vocabulary, padding = reference.config.vocab_size, reference.config.pad_token_id or 0
    ids, mask = (
        torch.randint(vocabulary, (rows, bucket), generator=generator),
        torch.ones(rows, bucket, dtype=torch.int64),
    )
    mask[-1, bucket - bucket // 4 :] = 0
    ids = ids.masked_fill(mask == 0, padding)
    targets = torch.randint(vocabulary, (rows, num_steps), generator=generator)
    with torch.no_grad():
        # Without a mask of its own: an architecture may take its padding token for padding.
        original = reference(
            input_ids=ids,
            attention_mask=mask,
            decoder_input_ids=targets,
            decoder_attention_mask=torch.ones_like(targets),
        )
    state = loaded.take_state()
    hidden = loaded.run(f"encode_{bucket}", [ids, mask], state)["last_hidden_state"]
    first = loaded.run(f"prefill_{bucket}", [targets[:, :1].contiguous(), mask, hidden], state)["logits"]
    whole_mask = torch.nn.functional.pad(mask, (0, config.num_source_slots - bucket))
    found = {
        f"encode_{bucket}.last_hidden_state": (hidden[mask.bool()], original.encoder_last_hidden_state[mask.bool()]),
        f"prefill_{bucket}.logits": (first, original.logits[:, :1]),
    }
    for step in range(1, num_steps):
        inputs = [targets[:, step : step + 1].contiguous(), whole_mask, torch.tensor([step])]
        logits = loaded.run("decode", inputs, state)["logits"]
        found[f"decode.logits[{step}] after prefill_{bucket}"] = (logits, original.logits[:, step : step + 1])
    loaded.give_back(state)
    return [_error(name, ours, theirs.float(), config, atol) for name, (ours, theirs) in found.items()]


def _error(
    name: str, found: torch.Tensor, original: torch.Tensor, config: NeuronSeq2SeqConfig, atol: float | None
) -> OutputError:
    tolerance = default_tolerance(config, original.abs().max().item()) if atol is None else atol
    return compare(name, found, original, tolerance=tolerance)
