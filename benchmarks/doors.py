"""Other libraries' classes over the engine: greedy tokens a second of each door, against `generate` of the same model.

Each door runs its own loop, which may cost at most 3 % of the engine's speed.
"""

from __future__ import annotations

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

PROMPT, ANSWER = 16, 128


def run(settings: Settings) -> list[Row]:
    """Measure the doors in turn, on one compiled model."""
    import torch

    from optimum_neuron.transformers_neuronx import LlamaForSampling

    options = {"n_positions": settings.sequence_length, "batch_size": 1, "tp_degree": 1, "amp": "bf16"}
    door = LlamaForSampling.from_pretrained(contenders.folder(settings.model), **options)
    door.to_neuron()
    door.compiled.wait_for_host_code()
    ids = torch.arange(5, 5 + PROMPT)[None]
    length = PROMPT + ANSWER
    greedy = {"max_length": length, "eos_token_id": None, "do_sample": False, "attention_mask": torch.ones_like(ids)}

    def engine() -> float:
        return ANSWER / seconds(lambda: door.compiled.generate(ids, **greedy))

    def transformers_neuronx() -> float:
        return ANSWER / seconds(lambda: door.sample(ids, length, top_k=1, eos_token_override=-1))

    times = in_turn({"generate": engine, "transformers_neuronx": transformers_neuronx}, settings.rounds)
    rows = rows_of(times, "tokens/s")
    plain, own = times["generate"], times["transformers_neuronx"]
    return [*rows, ratio("transformers_neuronx over generate", own, plain, note="at least 0.97")]
