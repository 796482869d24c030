"""Other libraries' classes over the engine: greedy tokens a second of each door, against the engine of the same model.

Each door runs its own loop, which may cost at most 3 % of the engine's speed: `generate` for `transformers_neuronx` and
NxD Inference, continuous batching with its manager for vLLM's `LLM`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from . import contenders
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

PROMPT, ANSWER, REQUESTS = 16, 128, 8


def run(settings: Settings) -> list[Row]:
    """Measure each door and the engine in turn; both use the same compiled model."""
    return [*_generating(settings), *_vllm(settings)]


def _vllm(settings: Settings) -> list[Row]:
    """Requests of `LLM.generate`, against the same requests to the manager."""
    from optimum_neuron.vllm_neuron import LLM, SamplingParams

    llm = LLM(str(contenders.folder(settings.model)), max_model_len=settings.sequence_length, max_num_seqs=4)
    manager, model = llm.llm_engine.core.generator.manager, llm.llm_engine.core.generator.model
    model.wait_for_host_code()
    prompts = [list(range(5 + number, 5 + number + PROMPT)) for number in range(REQUESTS)]
    params = SamplingParams(temperature=0.0, max_tokens=ANSWER, ignore_eos=True)
    num_tokens = REQUESTS * ANSWER

    def batched() -> None:
        names = manager.add_requests(prompts, max_new_tokens=ANSWER, eos_token_id=-1, do_sample=False)
        for name in names:
            assert len(manager.get_result(name).generated_tokens) == ANSWER

    def manager_alone() -> float:
        return num_tokens / seconds(batched)

    def vllm() -> float:
        return num_tokens / seconds(lambda: llm.generate(prompts, params, use_tqdm=False))

    times = in_turn({"continuous batching": manager_alone, "vllm": vllm}, settings.rounds)
    plain, own = times["continuous batching"], times["vllm"]
    return [*rows_of(times, "tokens/s"), ratio("vllm over continuous batching", own, plain, note="at least 0.97")]


def _generating(settings: Settings) -> list[Row]:
    """Doors of single sequences, against `generate` of the same model."""
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
