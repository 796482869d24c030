"""A fleet on a Ray cluster of two machines: answers, streams, killed replicas, and rolling updates."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from optimum_neuron.serving.fleet import app, parse_fleet
from optimum_neuron.serving.fleet.ingress import Fleet
from tests.serving.fleet.conftest import fleet_args, wait_until

NAME = "fleet-test"
LONG = {"model": "chat", "prompt": "abc", "max_tokens": 150, "ignore_eos": True, "temperature": 0}
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def url(serve: Any, chat_checkpoint: Path, cache_url: str) -> str:
    """Two replicas, ready."""
    serve.run(app(fleet_args(chat_checkpoint, cache_url)), name=NAME, route_prefix="/")
    wait_until(lambda: httpx.get(f"{serve.address}/health", timeout=30).status_code == 200)
    return serve.address


def replicas():
    """Processes of the replicas, by their titles."""
    title = f"ray::ServeReplica:{NAME}:chat"
    return [one for one in psutil.process_iter() if title in " ".join(_words(one))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def complete(url, **more):
    return httpx.post(f"{url}/v1/completions", json={**LONG, **more}, timeout=180)


def many(url, count):
    """Send requests at the same time; return a function that returns their responses."""
    responses: list[Any] = [None] * count

    def send(index):
        responses[index] = complete(url)

    threads = [threading.Thread(target=send, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()

    def joined():
        for thread in threads:
            thread.join()
        return responses

    return joined


def test_answers_come_from_two_machines(url):
    answers = [response.json() for response in many(url, 8)()]
    texts = {answer["choices"][0]["text"] for answer in answers}
    assert len(texts) == 1 and {answer["usage"]["completion_tokens"] for answer in answers} == {150}
    assert len(replicas()) == 2
    report = httpx.get(f"{url}/health", timeout=30).json()
    assert report["models"]["chat"] == {"state": "ready", "replicas": {"RUNNING": 2}}


def test_models_have_the_facts_of_a_replica(url):
    wait_until(lambda: httpx.get(f"{url}/v1/models", timeout=30).json()["data"][0]["max_model_len"] == 192)
    (card,) = httpx.get(f"{url}/v1/models", timeout=30).json()["data"]
    assert card["id"] == "chat" and card["state"] == "ready"


def test_metrics_are_those_of_all_replicas(url):
    from prometheus_client.parser import text_string_to_metric_families

    def tokens():
        families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text)
        samples = [sample for one in families if one.name == "vllm:generation_tokens" for sample in one.samples]
        return {sample.labels["replica"]: sample.value for sample in samples}

    wait_until(lambda: len(tokens()) == 2 and sum(tokens().values()) >= 8 * 150)


def test_openai_client_streams_through_the_proxy(url):
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
        letters = {"allowed_token_ids": list(range(3, 90))}  # each is a whole character, so each is a chunk
        chunks = list(client.chat.completions.create(**body, stream=True, extra_body=letters))
    assert len(chunks) >= 3 and chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("body", "status"),
    [({**LONG, "max_tokens": "x"}, 400), ({**LONG, "model": "chad"}, 404), ({**LONG, "tmp": 1}, 400), ([], 400)],
)
def test_errors_are_those_of_one_server(url, body, status):
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=30)
    assert response.status_code == status and response.json()["error"]["message"]


def test_a_killed_replica_loses_no_request_that_had_not_streamed(url):
    expected = complete(url).json()["choices"][0]["text"]
    joined = many(url, 8)
    time.sleep(0.15)
    replicas()[0].kill()
    responses = joined()
    assert [response.status_code for response in responses] == [200] * 8
    assert {response.json()["choices"][0]["text"] for response in responses} == {expected}
    wait_until(lambda: len(replicas()) == 2)


def test_a_stream_whose_replica_is_killed_says_so(url):
    events = []
    with httpx.stream("POST", f"{url}/v1/completions", json={**LONG, "stream": True}, timeout=180) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                if len(events) == 3:
                    joined = many(url, 2)
                    time.sleep(0.05)
                    for process in replicas():
                        process.kill()
    assert events[-1]["error"]["code"] == "replica_died" and events[-1]["error"]["type"] == "service_unavailable_error"
    assert [response.status_code for response in joined()] == [200, 200]  # by the replicas that came after them


def test_a_client_that_leaves_frees_its_row(url):
    wait_until(lambda: len(replicas()) == 2)
    with httpx.stream("POST", f"{url}/v1/completions", json={**LONG, "stream": True}, timeout=180) as response:
        next(response.iter_lines())
    assert complete(url, max_tokens=2).status_code == 200


def test_a_rolling_update_loses_no_request(url, serve, chat_checkpoint, cache_url):
    from tests.serving.conftest import OPTIONS

    before, ended, statuses = {one.pid for one in replicas()}, threading.Event(), []

    def send():
        while not ended.is_set():
            statuses.append(complete(url, max_tokens=20).status_code)

    thread = threading.Thread(target=send)
    thread.start()
    changed = fleet_args(chat_checkpoint, cache_url, options={**OPTIONS, "batch_size": 2})
    serve.run(app(changed), name=NAME, route_prefix="/")
    ended.set()
    thread.join()
    assert set(statuses) == {200} and len(statuses) > 2
    wait_until(lambda: len(replicas()) == 2 and not before & {one.pid for one in replicas()})


def test_replicas_are_added_while_requests_wait(url, serve, chat_checkpoint, cache_url):
    scaling = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 0.5}
    scaling |= {"metrics_interval_s": 0.2, "look_back_period_s": 1.0, "downscale_delay_s": 0.5}
    serve.run(app(fleet_args(chat_checkpoint, cache_url, autoscaling_config=scaling)), name=NAME, route_prefix="/")
    wait_until(lambda: len(replicas()) == 1)
    ended = threading.Event()

    def send():
        while not ended.is_set():
            assert complete(url).status_code == 200

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(replicas()) == 2)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_fleet_finds_models_without_a_replica(chat_checkpoint, cache_url):
    from optimum_neuron.errors import RequestError
    from optimum_neuron.serving import Call

    fleet = Fleet(parse_fleet(fleet_args(chat_checkpoint, cache_url)))
    assert fleet.health()[0] == 503 and fleet.models()["data"][0]["state"] == "loading"
    for endpoint, body, status in (("/v1/chat", {}, 404), ("/v1/completions", {"model": "x"}, 404)):
        with pytest.raises(RequestError) as error:
            asyncio.run(fleet.answer(endpoint, body, Call()))
        assert error.value.details["status"] == status
