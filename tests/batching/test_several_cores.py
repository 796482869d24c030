"""Blocks of a program on several cores: tokens and probabilities are those of one core, also under load."""

from __future__ import annotations

import pytest
from transformers import ContinuousBatchingConfig

PROMPTS = [[*range(60, 76), *range(3, 3 + 3 * index)] for index in range(1, 9)] * 2
SETTINGS = {"max_new_tokens": 10, "eos_token_id": -1}


def answers(model, **settings):
    config = ContinuousBatchingConfig(return_logprobs=True)
    with model.continuous_batching_context_manager(continuous_batching_config=config) as manager:
        names = [manager.add_request(prompt, seed=4, **SETTINGS | settings) for prompt in PROMPTS]
        outputs = [manager.get_result(name) for name in names]
        assert manager.engine.counters.preemptions_total > 0
        assert manager.engine.counters.shared_tokens_total > 0
    assert [output.error for output in outputs] == [None] * len(names)
    return [output.generated_tokens for output in outputs], [output.logprobs for output in outputs]


@pytest.mark.full(days=4)
@pytest.mark.parametrize("option", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_tokens_are_those_of_one_core(model, export, checkpoint_of_model, option):
    divided = export(checkpoint_of_model, num_blocks=10, decode_buckets=(48,), **{option: 2})
    for settings in ({"do_sample": False}, {"do_sample": True, "top_k": 20}):
        (expected, exact), (tokens, close) = answers(model, **settings), answers(divided, **settings)
        assert tokens == expected
        for row, other in zip(exact, close, strict=True):
            assert other == pytest.approx(row, abs=1e-3)
    divided.close()
