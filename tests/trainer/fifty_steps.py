"""Losses of 50 steps of `NeuronTrainer` and of transformers' `Trainer` on the CPU, with the same seed and data.

    python -m tests.trainer.fifty_steps

prints the largest difference for a small Llama, the same with LoRA, and a small BERT, eager and compiled; the exit code
is 1 if one is above 1e-4. The tests take fewer steps.
"""

from __future__ import annotations

import tempfile
from typing import Any

from tests.distributed.layouts import model_of
from tests.trainer.conftest import losses, make_trainer

NUM_STEPS = 50
TOLERANCE = 1e-4


def train(model: str, *, upstream: bool, **options: Any) -> list[float]:
    """Return the losses of one run."""
    options |= dict(max_steps=NUM_STEPS, learning_rate=1e-3, per_device_train_batch_size=8, upstream=upstream)
    trainer = make_trainer(tempfile.mkdtemp(), *model_of(model), **options)
    trainer.train()
    return losses(trainer)


def differs(name: str, actual: list[float], expected: list[float]) -> bool:
    """Print the largest difference; return whether it is above the tolerance."""
    assert len(actual) == len(expected) == NUM_STEPS
    worst = max(abs(a - b) for a, b in zip(actual, expected, strict=True))
    print(f"RESULT {name}: largest difference {worst:.2e}, last loss {actual[-1]:.4f}")
    return not worst <= TOLERANCE


def main() -> int:
    """Compare; return the exit code."""
    failed = False
    for model in ("llama", "lora", "bert"):
        expected = train(model, upstream=True)
        for compiled_model in (False, True):
            actual = train(model, upstream=False, torch_compile=compiled_model)
            failed |= differs(f"{model}, {'compiled' if compiled_model else 'eager'}", actual, expected)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
