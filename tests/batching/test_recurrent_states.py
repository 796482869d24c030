"""Requests with recurrent states: tokens are those of transformers, and bit by bit those of each alone."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig

from optimum_neuron.errors import ConfigError
from tests.models.generic.test_states import CASES
from tests.tiny import VOCABULARY, save_tiny

pytestmark = pytest.mark.full(days=2, by="file")

SETTINGS = {"max_new_tokens": 9, "do_sample": False}


def prompts() -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, 38))] for _ in range(10)]


@pytest.fixture(scope="module", params=["lfm2", "mamba2"])
def pair(request, export, tmp_path_factory):
    """A model with few blocks, so that requests give way to each other, and transformers' own."""
    folder = save_tiny(tmp_path_factory.mktemp(request.param), request.param, **CASES[request.param])
    compiled = export(folder, num_blocks=9, decode_buckets=(48,))
    return compiled, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def serve(manager, requests):
    names = [manager.add_request(prompt, eos_token_id=-1, **SETTINGS) for prompt in requests]
    outputs = [manager.get_result(name) for name in names]
    assert [output.error for output in outputs] == [None] * len(names)
    return [(output.generated_tokens, output.logprobs) for output in outputs]


@pytest.mark.full(days=4)
def test_tokens_are_those_of_transformers_and_of_each_request_alone(pair):
    compiled, original = pair
    config = ContinuousBatchingConfig(return_logprobs=True)
    with compiled.continuous_batching_context_manager(continuous_batching_config=config) as manager:
        alone = [serve(manager, [prompt])[0] for prompt in prompts()]
        cancelled = manager.add_request([3] * 30, **SETTINGS)
        manager.cancel_request(cancelled)
        assert serve(manager, prompts()) == alone
        counters = manager.engine.counters
        assert counters.shared_tokens_total == 0
        # Without keys and values there are always blocks: 6 for each of 3 rows.
        has_keys = any("key_cache" in name for name in compiled.loaded.program.states)
        assert (counters.preemptions_total > 0) == has_keys
        assert manager.engine.pool.num_usable == (8 if has_keys else 18)
    for prompt, (tokens, _) in zip(prompts(), alone, strict=True):
        expected = original.generate(torch.tensor([prompt]), eos_token_id=None, **SETTINGS)
        assert tokens == expected[0, len(prompt) :].tolist()
    assert compiled.describe()["prefix_sharing"]["value"] == "off"


def test_generate_takes_padded_prompts_and_beams(pair):
    compiled, original = pair
    ids = torch.tensor([[0] * 17 + [9, 10, 11], [5, 6, 7, 8] * 5])
    for options in ({}, {"num_beams": 2}):
        settings = SETTINGS | options | {"eos_token_id": None}
        tokens = compiled.generate(ids, attention_mask=(ids > 0).long(), **settings)
        for row, prompt in enumerate((ids[:1, 17:], ids[1:])):
            expected = original.generate(prompt, **settings)[0, prompt.shape[1] :]
            assert torch.equal(tokens[row, 20:], expected)


def test_drafts_are_refused(pair, export):
    compiled, _ = pair
    with compiled.continuous_batching_context_manager() as manager, pytest.raises(ConfigError) as caught:
        manager.add_request([5, 6, 7], prompt_lookup_num_tokens=2, max_new_tokens=2)
    assert caught.value.details["states"]
    with pytest.raises(ConfigError) as caught:
        export(compiled.prepared.source.folder, extend_length=4, speculation=True)
    assert caught.value.details["option"] == "speculation"
