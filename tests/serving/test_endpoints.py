"""A new endpoint is one row of `ENDPOINTS`: it is served, described, limited, counted, and listed with the models."""

from __future__ import annotations

import functools
from typing import Any

import httpx
import pytest

from optimum_neuron.serving import Deployment, ServeOptions, running_server
from optimum_neuron.serving.answers import Call
from optimum_neuron.serving.deployment import ENDPOINTS
from optimum_neuron.serving.generator import Generator
from optimum_neuron.serving.protocol.base import Count, Request, Text
from tests.serving.conftest import KEY

PATH = "/v1/toy/echoes"


class EchoRequest(Request):
    """A text, and how often it comes back."""

    text: Text
    times: Count = 1


async def echo(generator: Generator, body: EchoRequest, call: Call, **named: object) -> dict[str, Any]:
    """Answer with the text and its tokens."""
    work = functools.partial(generator.encode, body.text, "text", add_special_tokens=True)
    ids = await generator.run(work, num_bytes=call.num_bytes, timeout_s=call.timeout_s)
    return {"object": "echo", "texts": [body.text] * body.times, "num_tokens": len(ids)}


@pytest.fixture(scope="module")
def http(deployment, url):
    """A client of a server with one endpoint more: the models are those of the other tests' server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENDPOINTS, PATH, (Generator, EchoRequest, echo))
        options = ServeOptions(port=0, api_key=(KEY,), max_body_bytes=2000)
        toy = Deployment((), options)
        toy.registry = deployment.registry
        toy.start, toy.close = (lambda: None), (lambda: None)  # the other server owns the models
        with (
            running_server(toy) as address,
            httpx.Client(base_url=address, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as client,
        ):
            yield client


def test_endpoint_answers_with_and_without_a_model_name(http):
    for model in ({}, {"model": "tiny"}):
        answer = http.post(PATH, json={"text": "Hi", "times": 2, **model})
        assert answer.status_code == 200 and answer.json()["texts"] == ["Hi", "Hi"]
        assert answer.json()["num_tokens"] >= 2


def test_endpoint_is_described_for_clients(http):
    described = http.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]["application/json"]
    assert described["schema"]["properties"]["times"]["default"] == 1
    assert described["schema"]["required"] == ["text"] and described["schema"]["additionalProperties"] is False


def test_endpoint_is_listed_with_the_models_that_answer_it(http):
    (card,) = [card for card in http.get("/v1/models").json()["data"] if card["id"] == "tiny"]
    assert PATH in card["endpoints"] and "/v1/embeddings" not in card["endpoints"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"text": "Hi", "tims": 2}, 400, "tims"),
        ({}, 400, "text"),
        ({"text": "Hi", "times": -1}, 400, "times"),
        ({"text": "Hi", "model": "other"}, 404, "model"),
        ({"text": "x" * 3000}, 413, None),
    ],
)
def test_endpoint_has_errors_in_the_form_of_openai(http, body, status, param):
    answer = http.post(PATH, json=body)
    assert answer.status_code == status and answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["param"] == param and answer.json()["error"]["message"]


def test_endpoint_needs_the_key_and_a_body(http):
    assert http.post(PATH, json={"text": "Hi"}, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert http.post(PATH, content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert http.get(PATH).status_code == 405


def test_requests_of_the_endpoint_are_counted(http):
    from prometheus_client.parser import text_string_to_metric_families

    def counted() -> dict[str, float]:
        families = {family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)}
        samples = [one for one in families["http_requests"].samples if one.name == "http_requests_total"]
        return {one.labels["status"]: one.value for one in samples if one.labels["handler"] == PATH}

    before = counted()
    for text in ("Hi", 1):
        http.post(PATH, json={"text": text})
    after = counted()
    assert {status: after[status] - before.get(status, 0) for status in ("200", "400")} == {"200": 1, "400": 1}


def test_path_for_all_endpoints_knows_it_by_its_fields(http):
    assert http.post("/invocations", json={"text": "Hi"}).json()["object"] == "echo"
    assert http.post("/invocations", json={"prompt": "Hi", "max_tokens": 1}).json()["object"] == "text_completion"
