"""Sampling on the device: the same tokens, and the reason where all logits are read."""

from __future__ import annotations

import pytest
import torch
from transformers import set_seed

from optimum_neuron import NeuronConfig, NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import work_of_call
from tests.modeling.common import random_ids
from tests.tiny import SHAPES

MAX_TOPK = 32
OPTIONS = {"max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": None, "do_sample": False}
EXPORT = SHAPES | {"export": True, "on_device_sampling": True, "max_topk": MAX_TOPK}


@pytest.fixture(scope="module", params=[1, 2], ids=["one core", "two cores"])
def sampling(request, checkpoint):
    with NeuronModelForCausalLM.from_pretrained(checkpoint, **EXPORT, tensor_parallel_size=request.param) as model:
        yield model


SETTINGS = {
    "one token": {},
    "32 candidates are read": {"do_sample": True, "top_k": 8},
    "32 candidates": {"do_sample": True, "top_k": 20, "top_p": 0.8, "temperature": 0.7, "num_return_sequences": 2},
    "top_k=32 is not below max_topk=32": {"do_sample": True, "top_k": MAX_TOPK},
    "top_k=0": {"do_sample": True, "top_k": 0, "top_p": 0.9},
    "RepetitionPenaltyLogitsProcessor": {"repetition_penalty": 1.3},
    "the results have them": {"return_dict_in_generate": True, "output_scores": True},
}


@pytest.mark.full(days=7)
@pytest.mark.parametrize("words", SETTINGS)
def test_tokens_are_the_same(words, sampling, model):
    ids = random_ids(3, 9)  # more rows than compiled
    inputs, results = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, []
    for one in (model, sampling):
        set_seed(0)
        result = one.generate(**inputs, **{**OPTIONS, **SETTINGS[words]})
        results.append(result if torch.is_tensor(result) else result.sequences)
    assert torch.equal(*results)
    assert words in sampling.last_loop.reason and words not in model.last_loop.reason


def test_program_and_simulated_time(sampling, model):
    name = next(name for name in sampling.loaded.program.graphs if name.startswith("decode_"))
    graph = sampling.loaded.program.graphs[name]
    shapes = {out: sampling.loaded.program.value_spec(graph, value).shape[1:] for out, value in graph.outputs.items()}
    candidates, vocabulary = (1, MAX_TOPK), sampling.config.vocab_size
    assert shapes == {
        "logits": (1, vocabulary),
        "next_token": (1, 1),
        "top_logits": candidates,
        "top_tokens": candidates,
    }
    ours, plain = (work_of_call(one.loaded.tracks[0].program, name, "none") for one in (sampling, model))
    added = {step.name for step in ours.steps if step.work.vector_elements} - {step.name for step in plain.steps}
    assert added >= {"aten.topk", "aten.argmax"}
    saved = SHAPES["batch_size"] * (4 * vocabulary - 8 - 12 * MAX_TOPK)
    assert plain.total.host_bytes - ours.total.host_bytes == saved


def test_options():
    assert NeuronConfig(on_device_sampling=True).resolve(max_position_embeddings=64).max_topk == 256
    for options in ({"max_topk": 8}, {"max_topk": 0, "on_device_sampling": True}):
        with pytest.raises(ConfigError) as excinfo:
            NeuronConfig(**options)
        assert excinfo.value.details["option"] == "max_topk"
