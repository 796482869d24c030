"""`/v1/completions` through OpenAI's client: tokens are those of `generate`, and probabilities those of the model."""

from __future__ import annotations

import pytest
import torch

MODEL = "tiny"


@pytest.fixture(scope="module")
def reference(chat_checkpoint):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(chat_checkpoint, dtype=torch.float32).eval()


def complete(client, prompt="Hello", **settings):
    settings = {"model": MODEL, "max_tokens": 8, "temperature": 0} | settings
    return client.completions.create(prompt=prompt, **settings)


def test_tokens_are_those_of_generate(client, reference, generator):
    ids = generator.tokenizer.encode("Hello")
    expected = reference.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0, len(ids) :].tolist()
    answer = complete(client, extra_body={"return_token_ids": True})
    assert answer.choices[0].token_ids == expected
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), 8)
    assert answer.choices[0].finish_reason == "length"


def test_prompts_may_be_texts_and_tokens(client, generator):
    texts = [complete(client, prompt).choices[0].text for prompt in ("Hello", "World")]
    both = complete(client, ["Hello", "World"])
    assert [choice.text for choice in both.choices] == texts
    assert [choice.index for choice in both.choices] == [0, 1]
    ids = [generator.tokenizer.encode(text) for text in ("Hello", "World")]
    assert [choice.text for choice in complete(client, ids).choices] == texts
    assert complete(client, ids[0]).choices[0].text == texts[0]


@pytest.mark.parametrize("settings", [{}, {"seed": 5, "temperature": 1.0}, {"echo": True}])
def test_a_stream_adds_up(client, settings):
    whole = complete(client, **settings).choices[0].text
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}, **settings))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole
    assert chunks[-1].usage.completion_tokens == 8 and not chunks[-1].choices
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "length"


def test_echoed_probabilities_are_those_of_the_model(client, reference, generator):
    ids = generator.tokenizer.encode("The quick brown fox")
    answer = complete(client, "The quick brown fox", echo=True, max_tokens=0, logprobs=1).choices[0]
    with torch.no_grad():
        logprobs = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [float(logprobs[place, token]) for place, token in enumerate(ids[1:])]
    assert answer.text == "The quick brown fox"
    assert answer.logprobs.token_logprobs[0] is None
    assert answer.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=1e-3)
    assert answer.logprobs.text_offset == list(range(len(ids)))


def test_probabilities_of_an_answer_are_those_of_the_model(client, generator):
    settings = {"logprobs": 3, "extra_body": {"return_token_ids": True, "return_tokens_as_token_ids": True}}
    choice = complete(client, presence_penalty=1.5, logit_bias={"50": 20}, **settings).choices[0]
    ids = generator.tokenizer.encode("Hello") + choice.token_ids
    scored = generator.score(ids, 3)[-8:]
    # What the model thinks, not what penalties make of it.
    assert choice.logprobs.token_logprobs == pytest.approx([one.logprob for one in scored], abs=1e-4)
    assert choice.logprobs.tokens == [f"token_id:{token}" for token in choice.token_ids]
    assert all(len(top) in (3, 4) for top in choice.logprobs.top_logprobs)
    assert 50 in choice.token_ids


def test_several_answers_have_seeds_of_their_own(client):
    settings = {"temperature": 1.0, "seed": 7}
    answers = [choice.text for choice in complete(client, n=3, **settings).choices]
    assert len(set(answers)) == 3
    assert answers == [complete(client, temperature=1.0, seed=7 + index).choices[0].text for index in range(3)]
    best = complete(client, best_of=3, logprobs=0, **settings).choices
    assert len(best) == 1 and best[0].text in answers


def test_stop_strings_and_tokens_end_an_answer(client, generator):
    text = complete(client, max_tokens=12).choices[0].text
    stop = text[4:6]
    cut = complete(client, max_tokens=12, stop=[stop, "never"]).choices[0]
    assert (cut.text, cut.finish_reason, cut.stop_reason) == (text[: text.index(stop)], "stop", stop)
    chunks = complete(client, max_tokens=12, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == cut.text
    whole = complete(client, max_tokens=12, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert whole.choices[0].text == cut.text + stop
    first = complete(client, extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    ended = complete(client, extra_body={"stop_token_ids": [first]}).choices[0]
    assert (ended.text, ended.finish_reason, ended.stop_reason) == ("", "stop", first)


def test_biases_limit_the_tokens(client):
    only = complete(client, extra_body={"allowed_token_ids": [68, 69], "return_token_ids": True}).choices[0]
    assert set(only.token_ids) <= {68, 69}
    banned = complete(client, logit_bias={str(only.token_ids[0]): -100}, extra_body={"allowed_token_ids": [68, 69]})
    assert only.text[0] not in banned.choices[0].text
    words = complete(client, extra_body={"bad_words": [only.text[0]], "allowed_token_ids": [68, 69]})
    assert only.text[0] not in words.choices[0].text


def test_the_end_can_be_ignored_and_delayed(client):
    ends = {"logit_bias": {"2": 100.0}}
    assert complete(client, **ends).usage.completion_tokens == 1
    assert complete(client, **ends, extra_body={"min_tokens": 5}).usage.completion_tokens == 6
    assert complete(client, **ends, extra_body={"ignore_eos": True}).usage.completion_tokens == 8


@pytest.mark.parametrize("kind", ["regex", "choice", "grammar"])
def test_constraints_of_vllm(client, kind):
    value = {"regex": "(ab)+c", "choice": ["red", "green"], "grammar": 'start: "x" ("y" | "z")'}[kind]
    text = complete(client, max_tokens=40, temperature=1.0, seed=1, extra_body={"structured_outputs": {kind: value}})
    old = complete(client, max_tokens=40, temperature=1.0, seed=1, extra_body={f"guided_{kind}": value})
    answer = text.choices[0]
    assert answer.text == old.choices[0].text and answer.finish_reason == "stop"
    if kind == "regex":
        assert answer.text.replace("ab", "") == "c"
    else:
        assert answer.text in (["red", "green"] if kind == "choice" else ["xy", "xz"])


def test_a_prompt_can_be_truncated(client, generator):
    short = complete(client, "World", extra_body={"add_special_tokens": False})
    long = complete(client, "Hello World", extra_body={"truncate_prompt_tokens": 5, "add_special_tokens": False})
    assert (long.choices[0].text, long.usage.prompt_tokens) == (short.choices[0].text, 5)
