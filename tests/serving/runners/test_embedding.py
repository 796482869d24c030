"""`/v1/embeddings` through OpenAI's client, against transformers."""

from __future__ import annotations

import asyncio

import numpy as np
import openai
import pytest
import torch
import transformers

TEXTS = ["a cat", "a much longer text", "dog"]


@pytest.fixture(scope="module")
def expected(checkpoints):
    folder = checkpoints["embed"][0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    original = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [original(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1) for text in TEXTS]
    return torch.nn.functional.normalize(torch.cat(rows), dim=-1).numpy()


def embed(client, given, **settings):
    answer = client.embeddings.create(**{"model": "embed", "input": given} | settings)
    return np.array([one.embedding for one in answer.data]), answer


@pytest.mark.parametrize("form", [{"encoding_format": "float"}, {}], ids=str)
def test_vectors_are_those_of_transformers(client, expected, form):
    # Without a format, OpenAI's client requests base64, and decodes it.
    vectors, answer = embed(client, TEXTS, **form)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert answer.usage.prompt_tokens == sum(len(text) + 2 for text in TEXTS)
    assert [one.index for one in answer.data] == [0, 1, 2]


def test_token_arrays_are_taken_as_they_are(client, checkpoints, expected):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoints["embed"][0])
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    np.testing.assert_allclose(embed(client, rows)[0], expected, atol=1e-5)
    np.testing.assert_allclose(embed(client, rows[0])[0], expected[:1], atol=1e-5)


def test_dimensions_are_those_of_the_configuration(client, expected):
    vectors, _ = embed(client, TEXTS, dimensions=8)
    cut = expected[:, :8] / np.linalg.norm(expected[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, cut, atol=1e-5)
    assert embed(client, "a", dimensions=32)[0].shape == (1, 32)
    with pytest.raises(openai.BadRequestError) as caught:
        embed(client, "a", dimensions=9)
    assert caught.value.param == "dimensions"


@pytest.mark.parametrize(
    "given", ["", [], [""], [[]], [9999], "a" * 40, [3] * 40, ["a"] * 3000], ids=lambda x: str(x)[:9]
)
def test_bad_inputs_are_errors_of_the_client(client, given):
    if given in ("", [""]):  # begin and end are tokens too
        assert embed(client, given)[0].shape == (1, 32)
        return
    with pytest.raises(openai.BadRequestError):
        embed(client, given)


def test_long_texts_can_be_cut(client):
    whole = embed(client, "a" * 22)[0]
    np.testing.assert_allclose(embed(client, "a" * 40, extra_body={"truncate_prompt_tokens": -1})[0], whole, atol=1e-5)


def test_prompts_that_are_not_pooled_are_those_of_sentence_transformers(client, http, checkpoints):
    peer = pytest.importorskip("sentence_transformers")
    original = peer.SentenceTransformer(str(checkpoints["prompted"][0]), device="cpu")
    texts = ["a cat", "a longer text", "dog"]
    expected = original.encode(texts)
    np.testing.assert_allclose(embed(client, texts, model="prompted")[0], expected, atol=1e-5)
    # Tokens are taken as they are: they have no prompt, and share no batch with texts that have one.
    tokens = [original.tokenizer(text)["input_ids"] for text in texts]
    plain = original.encode(texts, prompt="")
    np.testing.assert_allclose(embed(client, tokens, model="prompted")[0], plain, atol=1e-5)
    answer = http.post("/score", json={"model": "prompted", "text_1": texts[0], "text_2": texts[1:]}).json()
    scores = [one["score"] for one in answer["data"]]
    np.testing.assert_allclose(scores, original.similarity(expected[:1], expected[1:])[0], atol=1e-5)


def test_many_clients_get_the_vectors_that_they_get_alone(url, expected):
    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as shared:
            return await asyncio.gather(
                *(shared.embeddings.create(model="embed", input=TEXTS[number % 3]) for number in range(30))
            )

    for number, answer in enumerate(asyncio.run(ask_all())):
        np.testing.assert_allclose(answer.data[0].embedding, expected[number % 3], atol=1e-5)
