"""`/score` and `/rerank`, by a cross-encoder against transformers, and by embeddings."""

from __future__ import annotations

import pytest
import torch
import transformers

QUERY, DOCUMENTS = "a cat", ["dog", "a much long text", "cats"]


@pytest.fixture(scope="module")
def expected(checkpoints):
    folder = checkpoints["rank"][0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    original = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [original(**tokenizer(QUERY, text, return_tensors="pt")).logits[0, 0] for text in DOCUMENTS]
    return [float(row.sigmoid()) for row in rows]


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_scores_are_those_of_transformers(http, expected, path):
    body = {"model": "rank", "text_1": QUERY, "text_2": DOCUMENTS}
    answer = http.post(path, json=body).json()
    assert [one["score"] for one in answer["data"]] == pytest.approx(expected, abs=1e-5)
    pairs = http.post(path, json=body | {"text_1": [QUERY] * 3}).json()
    assert pairs["data"] == answer["data"]
    wrong = http.post(path, json=body | {"text_1": [QUERY] * 2})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "text_2")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked(http, expected, path):
    body = {"model": "rank", "query": QUERY, "documents": [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]]}
    results = http.post(path, json=body).json()["results"]
    order = sorted(range(3), key=lambda index: -expected[index])
    assert [one["index"] for one in results] == order
    assert [one["document"]["text"] for one in results] == [DOCUMENTS[index] for index in order]
    assert [one["relevance_score"] for one in results] == pytest.approx([expected[index] for index in order], abs=1e-5)
    best = http.post(path, json=body | {"top_n": 1, "return_documents": False}).json()["results"]
    assert [set(one) for one in best] == [{"index", "relevance_score"}]


def test_embeddings_score_by_their_cosine(http, client):
    data = client.embeddings.create(model="embed", input=[QUERY, *DOCUMENTS]).data
    vectors = torch.tensor([one.embedding for one in data])
    cosines = torch.cosine_similarity(vectors[:1], vectors[1:]).tolist()
    answer = http.post("/score", json={"model": "embed", "text_1": QUERY, "text_2": DOCUMENTS}).json()
    assert [one["score"] for one in answer["data"]] == pytest.approx(cosines, abs=1e-5)


@pytest.mark.parametrize(
    "change", [{"documents": []}, {"query": None}, {"documents": ["a" * 50]}, {"top_n": -1}], ids=str
)
def test_bad_bodies_are_errors_of_the_client(http, change):
    assert http.post("/rerank", json={"model": "rank", "query": "a", "documents": ["b"], **change}).status_code == 400
