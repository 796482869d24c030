"""Requests with drafts get the tokens that they get without, alone and beside others."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import ContinuousBatchingConfig

from optimum_neuron.engine import Draft
from optimum_neuron.errors import ConfigError
from optimum_neuron.modeling import EagleDraft, MedusaHeads
from tests.batching.test_engine import SETTINGS, prompts, serve
from tests.eagle import draft_config, draft_tensors, saved


@pytest.fixture
def manager(model):
    config = ContinuousBatchingConfig(return_logprobs=True)
    with model.continuous_batching_context_manager(continuous_batching_config=config) as manager:
        yield manager
    pool = manager.engine.pool
    assert (pool.num_used, pool.num_free, manager.engine.has_work) == (0, pool.num_usable, False)


@pytest.fixture(scope="module")
def heads(model, tmp_path_factory):
    torch.manual_seed(0)
    width = model.config.hidden_size
    tensors = {"0.0.linear.weight": torch.randn(width, width), "0.0.linear.bias": torch.zeros(width)}
    folder = tmp_path_factory.mktemp("heads")
    save_file(
        tensors | {"0.1.weight": torch.randn(model.config.vocab_size, width)}, folder / "medusa_lm_head.safetensors"
    )
    loaded = MedusaHeads.from_pretrained(folder, model)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def eagle(model, tmp_path_factory):
    config = draft_config(model.config)
    loaded = EagleDraft.from_pretrained(saved(config, draft_tensors(config), tmp_path_factory.mktemp("eagle")), model)
    yield loaded
    loaded.close()


class Oracle(Draft):
    """Knows the answers, and is wrong in every third token."""

    name, config = "oracle", None

    def __init__(self, answers: list[list[int]]) -> None:
        self.answers = answers

    def propose(self, ids_1C, hidden_NF):
        ids = ids_1C[0].tolist()
        answer = next(answer for answer in self.answers if answer[: len(ids)] == ids)
        return [token if (len(ids) + place) % 3 else 3 for place, token in enumerate(answer[len(ids) :])]


def requests_of(number: int) -> list[tuple[list[int], dict]]:
    return [
        (prompt, SETTINGS[index % len(SETTINGS)] | {"seed": index, "max_new_tokens": 8 + index % 11})
        for index, prompt in enumerate(prompts(number))
    ]


def test_padding_of_a_check_stays_within_the_slots(manager):
    """The check of the last candidate has room for three."""
    prompt, settings = [3] * 44, {"do_sample": False, "max_new_tokens": 4}
    ((expected, _),) = serve(manager, [(prompt, settings)])
    ((actual, _),) = serve(manager, [(prompt, settings | {"assistant_model": Oracle([prompt + expected])})])
    assert actual == expected and manager.engine.counters.candidate_tokens_total > 0


class Sure(Oracle):
    """Is never wrong."""

    def propose(self, ids_1C, hidden_NF):
        return self.answers[0][ids_1C.shape[1] :]


def test_candidates_behind_the_end_of_an_answer_are_left_out(manager):
    settings = {"do_sample": True, "seed": 1, "max_new_tokens": 9}
    ((answer, _),) = serve(manager, [([3, 4, 5], settings)])
    # Checks are of answer[1:4] and answer[5:8]: one candidate more comes behind these.
    end = next(place for place in (1, 2, 5, 6) if answer[place] not in answer[:place])
    settings |= {"eos_token_id": answer[end], "assistant_model": Sure([[3, 4, 5, *answer]])}
    ((tokens, _),) = serve(manager, [([3, 4, 5], settings)])
    assert tokens == answer[: end + 1]


def test_tokens_are_those_without_a_draft(manager, heads, eagle):
    requests = requests_of(18)
    plain = serve(manager, requests)
    oracle = Oracle([prompt + tokens for (prompt, _), (tokens, _) in zip(requests, plain, strict=True)])
    assistants = [{"assistant_model": one} for one in (oracle, heads, eagle)]
    drafts = ({"prompt_lookup_num_tokens": 3}, *assistants, {})
    mixed = [(prompt, settings | drafts[index % 5]) for index, (prompt, settings) in enumerate(requests)]
    alone = [serve(manager, [request])[0] for request in mixed]
    assert [tokens for tokens, _ in alone] == [tokens for tokens, _ in plain]
    for (_, actual), (_, expected) in zip(alone, plain, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    before = manager.engine.counters.preemptions_total
    assert serve(manager, mixed) == alone  # to the last bit, whatever runs beside them
    counters = manager.engine.counters
    assert counters.preemptions_total > before
    assert 0 < counters.accepted_tokens_total < counters.candidate_tokens_total


def test_accepted_candidates_need_no_steps(manager):
    prompt, settings = [5, 6, 7], {"max_new_tokens": 13, "do_sample": False}
    ((answer, _),) = serve(manager, [(prompt, settings)])
    before = manager.engine.counters.to_dict()
    oracle = Oracle([prompt + answer])
    oracle.propose = lambda ids, hidden: (prompt + answer)[ids.shape[1] :]
    ((tokens, _),) = serve(manager, [(prompt, settings | {"assistant_model": oracle})])
    after = manager.engine.counters.to_dict()
    assert tokens == answer
    # Three checks of three candidates, which give four tokens each.
    for name, number in {"steps_total": 3, "checks_total": 3, "accepted_tokens_total": 9}.items():
        assert after[name] - before[name] == number, name


def test_an_assistant_model_drafts_for_several_requests(manager, model):
    requests = [
        (prompt, {"max_new_tokens": 8, "do_sample": index == 2, "seed": 1}) for index, prompt in enumerate(prompts(3))
    ]
    plain = serve(manager, requests)
    drafted = serve(manager, [(prompt, settings | {"assistant_model": model}) for prompt, settings in requests])
    assert [tokens for tokens, _ in drafted] == [tokens for tokens, _ in plain]
    assert manager.engine.counters.accepted_tokens_total > 0


def test_a_draft_that_raises_fails_its_request_only(manager):
    outputs = [manager.add_request([3, 4, 5], max_new_tokens=6)]
    outputs.append(manager.add_request([6, 7], max_new_tokens=6, assistant_model=Oracle([])))
    results = {output.request_id: output for output in (manager.get_result(), manager.get_result())}
    assert [results[name].error is None for name in outputs] == [True, False]


def test_drafts_that_are_not_supported(manager, model, monkeypatch):
    for settings in ({"use_mtp": True}, {"assistant_early_exit": 1}, {"num_beams": 2, "prompt_lookup_num_tokens": 2}):
        with pytest.raises(ConfigError):
            manager.add_request([3], **settings)
    monkeypatch.setattr(model._decoder, "extend_length", 1)
    with pytest.raises(ConfigError):
        manager.add_request([3], prompt_lookup_num_tokens=2)
