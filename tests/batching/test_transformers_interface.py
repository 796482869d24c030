"""Code that was written for transformers' continuous batching runs: names, arguments, settings, and its own server."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig, GenerationConfig
from transformers.cli.serving.utils import CBGenerateManager
from transformers.generation import ContinuousMixin
from transformers.generation.continuous_batching import ContinuousBatchingManager

from optimum_neuron.batching import BatchingManager
from optimum_neuron.errors import ConfigError, ShapeError

PROMPT = [40, 41, 42, 43, 44]
SETTINGS = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": -1}
OTHER_PARTS = {"switch_to_cb_friendly_attn"}
"""Parts of transformers' manager without a counterpart: there is nothing to switch."""


@pytest.fixture(scope="module")
def tokenizer(checkpoint_of_model):
    return AutoTokenizer.from_pretrained(checkpoint_of_model)


@pytest.fixture(scope="module")
def original(checkpoint_of_model):
    return AutoModelForCausalLM.from_pretrained(checkpoint_of_model)


def parameters(function) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind not in kinds]


@pytest.mark.parametrize("kind", [ContinuousBatchingManager, ContinuousMixin])
def test_methods_have_the_same_arguments_in_the_same_order(model, kind):
    ours = BatchingManager if kind is ContinuousBatchingManager else type(model)
    names = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    for name in [*{*names} - OTHER_PARTS, "__iter__"] if ours is BatchingManager else names:
        expected = parameters(getattr(kind, name))
        assert parameters(getattr(ours, name))[: len(expected)] == expected, name


def test_attributes_have_transformers_names(model):
    with model.continuous_batching_context_manager() as manager:
        assert (manager.warmed_up, manager.is_tp_driver, manager.is_running()) == (True, True, True)
        assert (manager.num_return_sequences, manager.background_thread_status.fatal_error) == (1, None)
        config = manager.continuous_batching_config
        sizes = (config.page_size, config.num_blocks, config.max_batch_tokens, config.max_requests_per_batch)
        assert sizes == (8, 10, 16, 3)
        manager.num_return_sequences = 2
        names = manager.add_requests([PROMPT, PROMPT], max_new_tokens=3)
        outputs = [manager.get_result() for _ in range(4)]
        assert {output.request_id for output in outputs} == {*names, *(f"{name}__child#0" for name in names)}
        assert manager.current_batch > 0


def test_the_server_of_transformers_runs(model, tokenizer):
    async def ask() -> tuple[list[str], int, tuple]:
        server, config = CBGenerateManager(), GenerationConfig(**SETTINGS)
        server.init_cb(model, config)
        parts, inputs = [], {"input_ids": PROMPT}
        texts, streamer = server.generate_streaming(model, tokenizer, inputs, config, "first")
        while (text := await asyncio.wait_for(texts.get(), 10)) is not None:
            parts.append(text)
        answer = await asyncio.wait_for(server.generate_non_streaming(model, tokenizer, inputs, config, "second"), 10)
        assert server.is_alive()
        server.stop()
        server._cb.destroy()
        return parts, streamer.total_tokens, answer

    parts, num_tokens, (text, num_prompt, ids) = asyncio.run(ask())
    assert (num_tokens, num_prompt, len(ids)) == (8, 5, 8)
    assert all(isinstance(part, str) for part in parts)
    assert text == tokenizer.decode(ids, skip_special_tokens=True)


def test_probabilities_are_those_of_transformers(model, original):
    config = ContinuousBatchingConfig(return_logprobs=True)
    settings = GenerationConfig(**SETTINGS, repetition_penalty=1.3)
    output = model.generate_batch([PROMPT], settings, config)["req_0"]
    options = {"return_dict_in_generate": True, "output_scores": True, "eos_token_id": None}
    expected = original.generate(torch.tensor([PROMPT]), generation_config=settings, **options)
    assert output.generated_tokens == expected.sequences[0, 5:].tolist()
    scores = original.compute_transition_scores(expected.sequences, expected.scores, normalize_logits=True)
    torch.testing.assert_close(torch.tensor(output.logprobs), scores[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"stop_strings": ["a", "e", "x"]},
        {"bad_words_ids": [[146], [7, 8]]},
        {"sequence_bias": {(7,): 20.0}, "max_new_tokens": 3},
        {"min_new_tokens": 6, "eos_token_id": 18},
        {"min_length": 12, "eos_token_id": [18, 146]},
        {"min_length": 14, "min_new_tokens": 2, "eos_token_id": [18, 146, 54, 7, 8]},
        {"max_length": 9, "max_new_tokens": None},
        {"max_length": 9},
        {"suppress_tokens": [146, 54]},
        {"exponential_decay_length_penalty": (3, 1.5), "eos_token_id": 18},
        {"do_sample": True, "top_h": 0.5},
        {"do_sample": True, "epsilon_cutoff": 3e-4, "renormalize_logits": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_mean_what_they_mean_to_generate(model, tokenizer, settings):
    settings = SETTINGS | settings
    options = {"tokenizer": tokenizer} if "stop_strings" in settings else {}
    torch.manual_seed(3)
    expected = model.generate(torch.tensor([PROMPT]), **settings, **options)[0, 5:].tolist()
    (output,) = model.generate_batch([PROMPT], seed=3, **settings, **options).values()
    assert output.generated_tokens == expected


def test_generate_switches_to_blocks(model):
    ids = torch.tensor([PROMPT, PROMPT])
    tokens = model.generate(ids, cache_implementation="paged", **SETTINGS)
    assert torch.equal(tokens[0], model.generate(ids, **SETTINGS))


def test_settings_that_cannot_be_met_are_refused(model):
    manager = model.init_continuous_batching()
    decay = {"exponential_decay_length_penalty": (2, 1.1), "eos_token_id": -1}
    for settings in ({"cache_implementation": "static"}, {"is_assistant": True}, {"token_healing": True}, decay):
        with pytest.raises(ConfigError) as excinfo:
            manager.add_request(PROMPT, **settings)
        assert excinfo.value.details["option"] == next(iter(settings))
    with pytest.raises(ShapeError):
        manager.add_request(PROMPT, max_length=5)
    manager.destroy()


def test_a_manager_can_be_kept_for_the_next_session(model):
    config = GenerationConfig(**SETTINGS)
    config.continuous_batching_config = ContinuousBatchingConfig(return_logprobs=True, max_blocks_per_request=0)
    with model.continuous_batching_context_manager(config, persistent_manager=True) as manager:
        manager.add_request([5] * 20)
        first = manager.get_result()
    assert (len(first.logprobs), manager.is_running()) == (8, False)
    outputs = model.generate_batch([[5] * 20], config, persistent_manager=True)
    assert model.init_continuous_batching() is manager
    assert [output.generated_tokens for output in outputs.values()] == [first.generated_tokens]
    assert manager.engine.counters.shared_tokens_total == 16
    model.destroy_cached_continuous_batching_manager()
    assert model.init_continuous_batching() is not manager


def test_a_kept_manager_that_was_destroyed_is_not_used_again(model):
    with model.continuous_batching_context_manager(persistent_manager=True) as kept:
        pass
    with model.continuous_batching_context_manager() as manager:  # it ends with this session
        assert manager is kept
    with model.continuous_batching_context_manager(GenerationConfig(**SETTINGS)) as manager:
        assert manager is not kept
        manager.add_request(PROMPT)
        assert len(manager.get_result().generated_tokens) == 8


def test_a_kept_manager_outlives_others(model):
    other = model.init_continuous_batching()
    with model.continuous_batching_context_manager(persistent_manager=True) as kept:
        assert kept is not other
    other.destroy()
    assert model.init_continuous_batching() is kept
    model.destroy_cached_continuous_batching_manager()
