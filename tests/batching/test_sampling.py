"""Samplers of requests; the reference is transformers' `generate` with the same settings, on the same tiny model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList, MinLengthLogitsProcessor, StoppingCriteriaList

from optimum_neuron.batching import make_sampler
from optimum_neuron.batching.sampling import Sampler, checked_prompt
from optimum_neuron.errors import ConfigError, ShapeError
from tests.batching.stand_in import VOCABULARY
from tests.batching.test_manager import Model
from tests.raising import raises

PROMPT, SLOTS = [5, 6, 7, 5, 6], 24


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = Model().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.generation_config.eos_token_id = 3
    model.generation_config.pad_token_id = 0
    return model


def sampler_of(model, settings, *, config=None, seed=0, wants_logprobs=False) -> Sampler:
    options = {"num_slots": SLOTS, "seed": seed, "wants_logprobs": wants_logprobs}
    return make_sampler(model, PROMPT, config, settings, **options)


@torch.inference_mode()
def answer(model, sampler) -> list[int]:
    tokens = []
    for number in range(1, SLOTS):
        token, logprob = sampler.choose(model(sampler.ids).logits[0, -1])
        assert logprob is None
        tokens.append(token)
        if sampler.ends_with(token, number):
            break
    assert sampler.ids.tolist() == [PROMPT + tokens]
    return tokens


@pytest.fixture(scope="module")
def greedy(model):
    """The likeliest answer, which no token ends."""
    return model.generate(torch.tensor([PROMPT]), do_sample=False, eos_token_id=None, max_new_tokens=9)[0, 5:].tolist()


SETTINGS = [
    {},
    {"max_new_tokens": None, "max_length": 9},
    {"max_length": 7},
    {"repetition_penalty": 5.0},
    {"no_repeat_ngram_size": 1},
    {"bad_words_ids": [[5], [6]]},
    {"suppress_tokens": [*range(4, 40)]},
    {"forced_eos_token_id": 9, "eos_token_id": 9},
    {"max_time": 0.0},
    {"exponential_decay_length_penalty": (2, 1.5), "eos_token_id": 11},
    {"do_sample": True},
    {"do_sample": True, "temperature": 3.0, "top_k": 7},
    {"do_sample": True, "temperature": 3.0, "top_k": 0, "top_p": 0.9},
    {"do_sample": True, "temperature": 3.0, "top_k": 20, "top_p": 0.8, "repetition_penalty": 2.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_are_those_of_generate(model, settings):
    settings = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 9} | settings
    torch.manual_seed(3)
    expected = model.generate(torch.tensor([PROMPT]), **settings)[0, 5:].tolist()
    assert answer(model, sampler_of(model, settings, seed=3)) == expected


@pytest.mark.parametrize(
    "more", [{}, {"min_new_tokens": 6}, {"min_length": 9}, {"min_length": 12, "min_new_tokens": 1}], ids=str
)
def test_ends_of_answers_are_those_of_generate(model, greedy, more):
    for end in ({"eos_token_id": greedy[2]}, {"eos_token_id": [greedy[4], greedy[1]]}):
        settings = {"do_sample": False, "max_new_tokens": 9} | end | more
        expected = model.generate(torch.tensor([PROMPT]), **settings)[0, 5:].tolist()
        assert answer(model, sampler_of(model, settings)) == expected
    unending = {"do_sample": False, "max_new_tokens": 9, "eos_token_id": -1}
    assert answer(model, sampler_of(model, unending)) == greedy
    assert not sampler_of(model, settings).criteria, "nothing else is asked for every token"
    assert sampler_of(model, {}).end_ids == {3} and sampler_of(model, unending).end_ids == frozenset()


def test_keywords_of_generate_are_taken(model, greedy):
    settings = {"do_sample": False, "max_new_tokens": 9, "eos_token_id": None}
    own = {
        "logits_processor": [lambda ids, scores: scores.index_fill(1, torch.tensor([greedy[0]]), -torch.inf)],
        "stopping_criteria": [lambda ids, scores: torch.tensor([ids.shape[1] >= 9])],
        "prefix_allowed_tokens_fn": lambda batch, ids: [20, 21, 22] if len(ids) == 6 else [*range(VOCABULARY)],
    }
    for name, value in own.items():
        lists = {"logits_processor": LogitsProcessorList, "stopping_criteria": StoppingCriteriaList}
        theirs = {name: lists.get(name, lambda one: one)(value)}
        expected = model.generate(torch.tensor([PROMPT]), **settings, **theirs)[0, 5:].tolist()
        assert answer(model, sampler_of(model, settings | {name: value})) == expected != greedy
    with raises(ConfigError, option="stop_strings"):
        sampler_of(model, {"stop_strings": "x"})


def test_settings_of_the_manager_come_before_those_of_the_model(model):
    config = GenerationConfig(max_new_tokens=3, do_sample=True)
    sampler = sampler_of(model, {}, config=config, seed=11)
    assert sampler.max_new_tokens == 3 and sampler.generator.initial_seed() == 11
    assert sampler_of(model, {"max_new_tokens": 4, "top_p": None}, config=config).max_new_tokens == 4
    assert config.max_new_tokens == 3, "it is of all requests"
    assert sampler_of(model, {"do_sample": False}).generator is None
    assert sampler_of(model, {}, wants_logprobs=True).wants_logprobs and not sampler_of(model, {}).wants_logprobs


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SLOTS - 5),
        ({"max_new_tokens": 4}, 4),
        ({"max_new_tokens": SLOTS - 5}, SLOTS - 5),
        ({"max_new_tokens": SLOTS}, SLOTS - 5),
        ({"max_length": 9}, 4),
        ({"max_length": 6}, 1),
        ({"max_length": 99}, SLOTS - 5),
        ({"max_length": 9, "max_new_tokens": 6}, 6),
    ],
)
def test_answers_are_as_long_as_settings_and_slots_allow(model, settings, expected, caplog):
    sampler = sampler_of(model, settings)
    assert sampler.max_new_tokens == expected
    assert [sampler.ends_with(9, number) for number in range(1, expected + 1)] == [False] * (expected - 1) + [True]
    warned = [record for record in caplog.records if record.name.startswith("optimum_neuron")]
    assert len(warned) == (settings.get("max_new_tokens", 0) > expected)


def test_prompts_without_room_are_refused(model):
    with raises(ShapeError, size=5, limit=4) as failure:
        sampler_of(model, {"max_length": 5})
    assert "max_length" in failure.value.message
    with raises(ShapeError, size=SLOTS, limit=SLOTS - 1) as failure:
        make_sampler(model, [5] * SLOTS, None, {}, num_slots=SLOTS, seed=0, wants_logprobs=False)
    assert "max_length" not in failure.value.message


REFUSED = {
    "num_beams": (2, {}, {"mode": "beam_search"}),
    "cache_implementation": ("static", {}, {}),
    "guidance_scale": (2.0, {}, {}),
    "is_assistant": (True, {}, {}),
    "token_healing": (True, {}, {}),
    "use_mtp": (True, {}, {}),
    "assistant_early_exit": (1, {}, {}),
    "exponential_decay_length_penalty": ((2, 1.1), {"eos_token_id": -1}, {}),
    "temprature": (1.0, {}, {}),
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_a_request_cannot_have_is_refused(model, option):
    value, more, details = REFUSED[option]
    with raises(ConfigError, **details or {"option": option}) as failure:
        sampler_of(model, {option: value} | more)
    assert option != "temprature" or "temperature" in failure.value.hint
    with pytest.raises(ConfigError) as failure:
        sampler_of(model, {"max_new_tokens": 0})
    assert failure.value.details["settings"] == ["max_new_tokens"]


def test_what_changes_nothing_is_taken(model):
    for settings in ({"guidance_scale": 1.0}, {"cache_implementation": "paged"}, {"token_healing": False}):
        assert sampler_of(model, settings).is_plain


def test_prompts_are_tokens_of_the_vocabulary(model):
    last = VOCABULARY - 1
    for prompt in ([0, last], torch.tensor([[0, last]]), (0, last)):
        assert checked_prompt(model, prompt) == [0, last]
    for prompt, wrong in (([], []), ([3, VOCABULARY, -1], [VOCABULARY, -1]), ([0.5], [0.5])):
        with raises(ShapeError, ids=wrong):
            checked_prompt(model, prompt)


@pytest.mark.parametrize("reads_candidates", [True, False])
def test_candidates_of_the_device_are_read_where_they_are_enough(model, reads_candidates):
    settings = {"do_sample": True, "top_k": 4, "max_new_tokens": 9}
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    for seed in range(8):
        expected, _ = sampler_of(model, settings, seed=seed).choose(logits)
        top = logits[None].topk(5 if reads_candidates else 4)
        seen = torch.zeros_like(logits) if reads_candidates else logits
        on_device = (top.values, top.indices if reads_candidates else torch.zeros_like(top.indices))
        assert sampler_of(model, settings, seed=seed).choose(seen, on_device) == (expected, None)


@pytest.mark.parametrize("on_device", [True, False])
def test_tokens_that_rounding_decides_are_drawn_from_all_logits(model, on_device):
    """Two tokens are as likely, and top-p keeps the half."""
    logits = torch.full((VOCABULARY,), -30.0).index_fill(0, torch.tensor([9, 20]), 1.0)
    top = logits[None].topk(8)
    for seed in range(8):
        sampler = sampler_of(model, {"do_sample": True, "top_k": 4, "top_p": 0.5}, seed=seed)
        token, _ = sampler.choose(logits, (top.values, top.indices) if on_device else None)
        scores = sampler.processors(torch.tensor([PROMPT]), logits[None].clone())
        assert token == int(torch.multinomial(scores.softmax(1), 1, generator=torch.Generator().manual_seed(seed)))


def test_probabilities_are_those_of_what_is_chosen_from(model):
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    for settings in ({"do_sample": False}, {"do_sample": True, "top_k": 4, "temperature": 2.0}):
        sampler = sampler_of(model, settings, wants_logprobs=True, seed=1)
        token, logprob = sampler.choose(logits.bfloat16() if not settings["do_sample"] else logits)
        scores = sampler.processors(torch.tensor([PROMPT]), logits[None].clone())
        if settings["do_sample"]:
            drawn = torch.multinomial(scores.softmax(-1), 1, generator=torch.Generator().manual_seed(1))
            assert token == int(drawn) and logprob == pytest.approx(float(scores.log_softmax(-1)[0, token]))
        else:
            assert token == int(logits.argmax()) and logprob == pytest.approx(
                float(logits.log_softmax(-1).max()), abs=0.02
            )
    assert torch.equal(logits, before), "logits are of all requests of a step"


def test_readings_say_why(model):
    minimum = LogitsProcessorList([MinLengthLogitsProcessor(9, 3, device="cpu")])
    own = {"prompt": PROMPT, "max_new_tokens": 4, "end_ids": frozenset(), "criteria": StoppingCriteriaList()}
    greedy = Sampler(**own, processors=minimum, generator=None, wants_logprobs=False)
    assert greedy.reading(9) == "all logits are read: MinLengthLogitsProcessor changes them" and not greedy.is_plain
    settings = {"do_sample": True, "top_k": 4}
    assert sampler_of(model, settings).reading(5) == "5 candidates are read"
    assert sampler_of(model, settings).reading(4) == "all logits are read: top_k=4 is not below max_topk=4"
    assert sampler_of(model, settings | {"top_k": 0}).reading(5).startswith("all logits are read: top_k=0")
    for do_sample in (True, False):
        wants = sampler_of(model, settings | {"do_sample": do_sample}, wants_logprobs=True)
        assert wants.reading(5) == "all logits are read: logprobs are returned" and not wants.is_plain
    plain = sampler_of(model, {"do_sample": False})
    assert plain.reading(5) == "one token is read" and plain.is_plain


def test_drafts_are_those_of_the_model(model, monkeypatch):
    asked = []
    monkeypatch.setattr(model, "request_draft", lambda *given: asked.append(given) or "a draft")
    assistant = SimpleNamespace()
    assert sampler_of(model, {"assistant_model": assistant, "do_sample": False}).draft == "a draft"
    ((prompt, config, given),) = asked
    assert prompt is PROMPT and given is assistant and config.do_sample is False
