"""The kind of a model follows from its task, and `/v1/models` shows it; a wrong endpoint is an error of the client."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import RequestError
from optimum_neuron.serving.runners import choose_runner
from optimum_neuron.sources import load_source
from tests.tiny import save_tiny


def test_models_show_their_kind(http, kinds):
    cards = {card["id"]: card for card in http.get("/v1/models").json()["data"]}
    assert cards["embed"]["runner"]["value"] == "embedding" and "modules.json" in cards["embed"]["runner"]["reason"]
    assert cards["rank"]["runner"]["value"] == "scoring" and "/v1/rerank" in cards["rank"]["endpoints"]
    assert "/v1/embeddings" in cards["embed"]["endpoints"] and "/score" in cards["embed"]["endpoints"]
    assert (cards["two"]["state"], cards["two"]["endpoints"]) == ("failed", [])


def test_a_wrong_endpoint_is_an_error_of_the_client(http):
    answer = http.post("/v1/chat/completions", json={"model": "rank", "messages": [{"role": "user", "content": "a"}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "model_not_supported")
    answer = http.post("/v1/embeddings", json={"model": "two", "input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_failed")


def test_sagemakers_path_finds_the_endpoint(http):
    assert http.post("/invocations", json={"model": "embed", "input": "a"}).json()["object"] == "list"
    ranked = http.post("/invocations", json={"model": "rank", "query": "a", "documents": ["b"]}).json()
    assert ranked["results"][0]["index"] == 0


def test_other_tasks_are_refused_and_decoders_are_known(tmp_path):
    source = load_source(save_tiny(tmp_path, "llama"))
    assert choose_runner(source.folder, source.config).value.name == "generation"
    with pytest.raises(RequestError):
        choose_runner(source.folder, source.config, "fill-mask")


def test_metrics_count_requests_of_all_kinds(http):
    http.post("/v1/embeddings", json={"model": "embed", "input": "abc"})
    page = http.get("/metrics").text
    assert 'vllm:request_success_total{finished_reason="stop",model_name="embed"}' in page
    assert 'vllm:num_requests_waiting{model_name="rank"} 0.0' in page
    assert 'vllm:e2e_request_latency_seconds_count{model_name="embed"}' in page
    assert 'vllm:time_to_first_token_seconds_count{model_name="embed"}' not in page
