"""Other libraries' classes over the engine: greedy tokens a second of each door, against `generate` of the same model.

Each door runs its own loop, which may cost at most 3 % of the engine's speed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

PROMPT, ANSWER = 16, 128


def run(settings: Settings) -> list[Row]:
    """Measure the doors in turn, each on its own compiled model."""
    import torch

    ids = torch.arange(5, 5 + PROMPT)[None]
    length, mask = PROMPT + ANSWER, torch.ones_like(ids)
    greedy = {"max_length": length, "eos_token_id": None, "do_sample": False, "attention_mask": mask}
    rows = []
    for name, (compiled, call) in {"transformers_neuronx": _older(settings), "NxD Inference": _newer(settings)}.items():

        def engine(compiled: Any = compiled) -> float:
            return ANSWER / seconds(lambda: compiled.generate(ids, **greedy))

        def door(call: Callable[..., Any] = call) -> float:
            return ANSWER / seconds(lambda: call(ids, length))

        times = in_turn({f"generate ({name})": engine, name: door}, settings.rounds)
        plain, own = times.values()
        rows += [*rows_of(times, "tokens/s"), ratio(f"{name} over generate", own, plain, note="at least 0.97")]
        compiled.close()
    return rows


def _older(settings: Settings) -> tuple[Any, Callable[..., Any]]:
    """The compiled model of `transformers_neuronx`, and its loop."""
    from optimum_neuron.transformers_neuronx import LlamaForSampling

    options = {"n_positions": settings.sequence_length, "batch_size": 1, "tp_degree": 1, "amp": "bf16"}
    model = LlamaForSampling.from_pretrained(contenders.folder(settings.model), **options)
    model.to_neuron()
    model.compiled.wait_for_host_code()
    return model.compiled, lambda ids, length: model.sample(ids, length, top_k=1, eos_token_override=-1)


def _newer(settings: Settings) -> tuple[Any, Callable[..., Any]]:
    """The compiled model of NxD Inference, and `generate` of its adapter."""
    from optimum_neuron.neuronx_distributed_inference import (
        HuggingFaceGenerationAdapter,
        NeuronConfig,
        families,
        load_pretrained_config,
    )

    folder = contenders.folder(settings.model)
    neuron_config = NeuronConfig(seq_len=settings.sequence_length, max_context_length=128, torch_dtype="bfloat16")
    kind = families.model_class("llama")
    model = kind(folder, kind.get_config_cls()(neuron_config, load_config=load_pretrained_config(folder)))
    with tempfile.TemporaryDirectory() as compiled:
        model.compile(compiled)
        model.load(compiled)
    model.compiled.wait_for_host_code()
    adapter = HuggingFaceGenerationAdapter(model)

    def call(ids: Any, length: int) -> Any:
        return adapter.generate(ids, max_length=length, do_sample=False, eos_token_id=None)

    return model.compiled, call
