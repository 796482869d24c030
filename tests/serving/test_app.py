"""The server around the models: errors in OpenAI's form, keys, limits, health, metrics, and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import re
import socket
import threading
import time

import aiohttp
import httpx
import openai
import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.serving import Deployment, ServeOptions, model_specs, running_server
from tests.serving.conftest import KEY

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
COMPLETION = {"model": "tiny", "prompt": "Hi", "max_tokens": 2}


@pytest.fixture(scope="module")
def http(url):
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
        yield http


BAD = {
    "no object": ([], None),
    "unknown field": ({**CHAT, "tempreture": 1}, "tempreture"),
    "nested": ({**CHAT, "messages": [{"role": "user", "content": "Hi", "x": 1}]}, "messages.0.x"),
    "missing": ({"model": "tiny"}, "messages"),
    "wrong type": ({**CHAT, "temperature": "hot"}, "temperature"),
    "out of range": ({**CHAT, "top_p": 2}, "top_p"),
    "too many tokens": ({**CHAT, "max_tokens": 10_000}, "max_tokens"),
    "priority": ({**CHAT, "priority": "high"}, "priority"),
    "token outside of the vocabulary": ({**CHAT, "logit_bias": {"9999": 1}}, "logit_bias"),
    "schema that is none": (
        {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strange"}}}},
        None,
    ),
    "tool that is not there": (
        {**CHAT, "tools": [{"function": {"name": "a"}}], "tool_choice": {"function": {"name": "b"}}},
        None,
    ),
    "arguments that are no JSON": (
        {**CHAT, "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}]},
        "messages",
    ),
}


@pytest.mark.parametrize("body, param", BAD.values(), ids=BAD)
def test_bad_bodies_are_errors_of_the_client(http, body, param):
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and "Traceback" not in error["message"]
    assert param is None or error["param"] == param


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 50_000])
def test_what_is_no_json_is_an_error_of_the_client(http, text):
    assert http.post("/v1/completions", content=text).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {"suffix": "x"},
        {"prompt": []},
        {"prompt": [[]]},
        {"prompt": "x" * 5000},
        {"prompt": [9999]},
        {"best_of": 1, "n": 2},
        {"max_tokens": 0},
        {"stop": [""]},
        {"guided_regex": "("},
        {"guided_grammar": "root ::= ("},
        {"guided_json": "{", "stream": True},
        {"guided_json": {"$ref": "#/nowhere"}},
        {"n": 100},
        {"guided_choice": ["red"], "allowed_token_ids": [3]},
    ],
    ids=str,
)
def test_bad_completions_are_errors_of_the_client(http, body):
    answer = http.post("/v1/completions", json=COMPLETION | body)
    assert answer.status_code in (400, 429), answer.text
    assert answer.json()["error"]["message"]


def test_paths_models_and_sizes(http):
    assert http.post("/v1/chat/completions", json={**CHAT, "model": "gpt"}).json()["error"]["code"] == "model_not_found"
    assert http.get("/v1/nothing").status_code == 404
    assert http.get("/v1/completions").status_code == 405
    assert http.post("/v1/completions", json={**COMPLETION, "prompt": "x" * 200_000}).status_code == 413
    assert http.post("/v1/completions", content=iter([b" " * 60_000] * 2)).status_code == 413


def test_requests_need_the_key(url, client):
    stranger = client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    assert httpx.get(f"{url}/health").status_code == 200
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").max_model_len == 192
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_answers_have_the_identity_of_their_request(http):
    given = http.post("/v1/completions", json=COMPLETION, headers={"X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    made = http.post("/v1/completions", json=COMPLETION, headers={"X-Request-Id": "no\tname"})
    assert re.fullmatch("[0-9a-f]{32}", made.headers["x-request-id"])


def test_tokens_and_back(http):
    counted = http.post("/tokenize", json={"prompt": "Hi", "return_token_strs": True}).json()
    assert (counted["count"], counted["max_model_len"], counted["token_strs"]) == (2, 192, ["H", "i"])
    assert http.post("/detokenize", json={"tokens": counted["tokens"]}).json() == {"prompt": "Hi"}
    assert http.post("/detokenize", json={"tokens": [9999]}).status_code == 400


def test_sagemakers_paths(http):
    assert http.get("/ping").status_code == 200
    assert http.post("/invocations", json=CHAT).json()["object"] == "chat.completion"
    assert http.post("/invocations", json=COMPLETION).json()["object"] == "text_completion"
    assert http.post("/invocations", json={"inputs": "Hi"}).status_code == 400


def test_metrics_are_prometheus_and_count(http):
    from prometheus_client.parser import text_string_to_metric_families

    def read():
        page = http.get("/metrics").text
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {(one.name, one.labels.get("finished_reason", one.labels.get("category"))): one.value for one in samples}

    before = read()
    http.post("/v1/completions", json=COMPLETION | {"ignore_eos": True})
    after = read()
    changes = {name: after[name] - before.get(name, 0) for name in after}
    assert changes["vllm:generation_tokens_total", None] == 2
    assert changes["vllm:request_success_total", "length"] == 1
    assert changes["vllm:time_to_first_token_seconds_count", None] == 1
    assert changes["neuron_simulated_time_to_first_token_seconds_sum", None] > 0
    assert after["neuron_hbm_used_bytes", "kv_cache"] > 0


def idle(generator, seconds=10):
    """Wait until the engine has no request; return whether it has none."""
    end = time.monotonic() + seconds
    while generator.manager.engine.has_work and time.monotonic() < end:
        time.sleep(0.01)
    return not generator.manager.engine.has_work


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request(url, generator, stream):
    counters = generator.manager.engine.counters
    before = counters.requests_cancelled_total

    async def leave():
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
            body = COMPLETION | {"max_tokens": 180, "ignore_eos": True, "stream": stream}
            request = asyncio.ensure_future(session.post(f"{url}/v1/completions", json=body))
            while not generator.manager.engine.has_work:
                await asyncio.sleep(0.002)
            request.cancel()

    with generator.manager.pause():
        asyncio.run(leave())
    assert idle(generator)
    assert counters.requests_cancelled_total == before + 1
    assert generator.manager.get_result(timeout=0) is None


def test_more_than_the_queue_holds_is_refused(url, generator, http):
    body = COMPLETION | {"max_tokens": 20, "ignore_eos": True, "temperature": 0}

    async def ask():
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:

            async def one():
                async with session.post(f"{url}/v1/completions", json=body) as answer:
                    return answer.status, await answer.json(), answer.headers

            requests = [asyncio.ensure_future(one()) for _ in range(30)]
            while sum(request.done() for request in requests) < 20:
                await asyncio.sleep(0.01)
            pause.__exit__(None, None, None)
            return await asyncio.gather(*requests)

    pause = generator.manager.pause()
    pause.__enter__()
    answers = asyncio.run(ask())
    statuses = [status for status, _, _ in answers]
    assert statuses.count(200) >= 6 and set(statuses) == {200, 429}
    refused = next((answer, headers) for status, answer, headers in answers if status == 429)
    assert refused[0]["error"]["type"] == "rate_limit_error" and refused[1]["Retry-After"]
    assert len({json.dumps(answer["choices"]) for status, answer, _ in answers if status == 200}) == 1


@pytest.mark.parametrize(("num_frozen", "expected"), [(0, ["freeze", "unfreeze"]), (7, [])])
def test_loaded_models_are_left_out_of_collections(num_frozen, expected, monkeypatch):
    calls = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: num_frozen)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, functools.partial(calls.append, name))
    registry = Deployment((), ServeOptions()).registry
    registry.start()
    registry.wait()
    assert calls == expected[:1]
    registry.close()
    assert calls == expected


def test_a_request_has_a_time_limit(http, generator):
    with generator.manager.pause():
        answer = http.post("/v1/completions", json=COMPLETION | {"timeout_s": 0.05})
    assert (answer.status_code, answer.json()["error"]["type"]) == (408, "timeout_error")
    assert idle(generator)


def test_a_model_that_is_not_ready_is_listed(chat_checkpoint):
    options = ServeOptions(port=0)
    broken = Deployment(model_specs((str(chat_checkpoint),), options, {"sequence_length": 10**6}), options)
    with running_server(broken) as url:
        report = httpx.get(f"{url}/health")
        assert (report.status_code, report.json()["models"]["tiny"]["state"]) == (503, "failed")
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["state"] == "failed"
        answer = httpx.post(f"{url}/v1/completions", json=COMPLETION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_failed")
        assert httpx.get(f"{url}/ping").status_code == 503


def test_host_code_that_serves_is_reported(http):
    (model,) = http.get("/health").json()["models"].values()
    assert model["host_code"] == {"serves": "aten", "requests_on_earlier": 0}
    metrics = http.get("/metrics").text
    assert re.search(r'neuron_host_code\{levels="aten",model_name="\w+"\} 1\.0', metrics)
    assert re.search(r'neuron_requests_on_earlier_host_code\{model_name="\w+"\} 0\.0', metrics)
    assert re.search(r'neuron_untimed_calls_total\{model_name="\w+"\} 0\.0', metrics)


def test_a_model_that_compiles_reports_its_progress(chat_checkpoint, monkeypatch):
    from optimum_neuron.base.progress import Progress

    gate = threading.Event()

    def load(model):
        with Progress("test") as progress:
            progress.captured("prefill_64")
            gate.wait(30)
        raise ConfigError("enough")

    monkeypatch.setattr("optimum_neuron.serving.models.load_replicas", load)
    options = ServeOptions(port=0)
    deployment = Deployment(model_specs((str(chat_checkpoint),), options, {}), options)
    with running_server(deployment, waits=False) as url:
        while (model := httpx.get(f"{url}/health").json()["models"]["tiny"]).get("export") is None:
            time.sleep(0.01)
        assert model["export"] == {"step": "captured prefill_64", "done": 1, "known": 1}
        assert httpx.get(f"{url}/health").status_code == 503
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["state"] == "loading"
        answer = httpx.post(f"{url}/v1/completions", json=COMPLETION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_loading")
        gate.set()


def test_options_are_checked():
    with pytest.raises(ConfigError):
        ServeOptions(port=70_000)
    for wrong in ({"served_model_name": ("a", "b")}, {"lora_modules": ("a",)}, {"lora_modules": ("m=folder",)}):
        with pytest.raises(ConfigError):
            model_specs(("m",), ServeOptions(**wrong), {})
    names = [spec.name for spec in model_specs(("/models/one", "org/two"), ServeOptions(), {})]
    assert names == ["one", "org/two"]


@pytest.mark.parametrize("field", ["prompt", "messages", "input"])
def test_a_text_that_cannot_fit_is_not_tokenized(http, generator, field, monkeypatch):
    text = "x" * (generator.max_characters + 1)
    body, path = {
        "prompt": ({"prompt": text}, "/v1/completions"),
        "messages": ({"messages": [{"role": "user", "content": text}]}, "/v1/chat/completions"),
        "input": ({"input": text}, "/v1/responses"),
    }[field]
    monkeypatch.setattr(type(generator.tokenizer), "encode", lambda *_, **__: pytest.fail("it is tokenized"))
    answer = http.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("kind", ["numbers", "strings", "mappings"])
def test_values_of_a_body_are_limited_and_text_is_not(kind):
    from optimum_neuron.errors import RequestError
    from optimum_neuron.serving import bodies

    raw = {"numbers": b"1,", "strings": b'"a",', "mappings": b"{},"}[kind] * 600_000
    with pytest.raises(RequestError) as error:
        bodies._check_number(b"[" + raw + b"1]")
    assert error.value.details["status"] == 413
    bodies._check_number(json.dumps({"prompt": raw.decode()}).encode())


def test_numbers_past_the_range_are_errors(http):
    raw = b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"a": 1e400}}'
    assert http.post("/v1/chat/completions", content=raw).status_code == 400


def test_a_client_that_leaves_within_its_body_is_no_error(url, http, caplog):
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 99\r\n\r\n{{"
    for kind in ("application/json", "multipart/form-data; boundary=x"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.replace("Host", f"Content-Type: {kind}\r\nHost").encode())
            time.sleep(0.2)
    time.sleep(0.3)
    assert http.get("/ping").status_code == 200
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


def test_cached_tokens_of_a_prompt_are_in_the_usage(http):
    body = COMPLETION | {"prompt": "the same prompt " * 6}
    chat = CHAT | {"messages": [{"role": "user", "content": body["prompt"]}]}
    for path, one in (("/v1/completions", body), ("/v1/chat/completions", chat)):
        http.post(path, json=one)
        details = http.post(path, json=one).json()["usage"]["prompt_tokens_details"]
        assert details["cached_tokens"] == 64  # a whole chunk


def test_special_tokens_of_users_stay_text(generator, http):
    end = generator.tokenizer.eos_token
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"a{end}b"}]}
    ids = http.post("/tokenize", json=body).json()["tokens"]
    assert generator.tokenizer.eos_token_id not in ids
    assert end in generator.tokenizer.decode(ids)
    plain = http.post("/tokenize", json={"model": "tiny", "prompt": f"a{end}b", "add_special_tokens": False}).json()
    assert generator.tokenizer.eos_token_id in plain["tokens"]


def answer_of(url, *parts):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
        with contextlib.suppress(ConnectionResetError):
            return connection.recv(1000).split(b"\r\n")[0]
    return b"reset"


LONG = b"x" * 40_000


@pytest.mark.parametrize("name", [b"X-A: ", b"X-A: a\r\n" * 3 + b"X-B: "])
def test_headers_are_limited(url, http, name):
    head = b"GET /ping HTTP/1.1\r\nHost: a\r\n" + name
    assert b" 200 " in answer_of(url, head + LONG + b"\r\n\r\n")
    assert answer_of(url, head, *[LONG] * 40) in (b"HTTP/1.1 431 Request Header Fields Too Large", b"reset")
    assert b" 431" in answer_of(url, head + LONG + b"\r\nX-C: " + LONG + b"\r\n\r\n")
    assert http.get("/ping").status_code == 200


def test_a_slow_head_ends(url, http, monkeypatch):
    monkeypatch.setattr("optimum_neuron.serving.connection.HEAD_TIMEOUT_S", 0.2)
    assert b" 408 " in answer_of(url, b"GET /ping HTTP/1.1\r\n")
    assert http.get("/ping").status_code == 200
    assert http.get("/ping").status_code == 200


def test_keys_with_special_tokens_are_errors(generator, http):
    call = {
        "type": "function",
        "function": {"name": "f", "parameters": {"properties": {generator.tokenizer.eos_token: {}}}},
    }
    assert http.post("/v1/chat/completions", json=CHAT | {"tools": [call]}).status_code == 400
