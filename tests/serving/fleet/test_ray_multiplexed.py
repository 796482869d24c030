"""Replicas that load models when they are requested, and an encoder behind the same deployment object."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from optimum_neuron.serving.fleet import app
from tests.encoders import save_letters, save_tiny_encoder
from tests.serving.conftest import OPTIONS
from tests.serving.fleet.conftest import wait_until
from tests.serving.runners.conftest import ENCODER

pytestmark = pytest.mark.filterwarnings(*[f"ignore::{kind}Warning" for kind in ("Deprecation", "Future", "Resource")])


@pytest.fixture(scope="module")
def url(serve: Any, chat_checkpoint: Path, cache_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One replica for two chat models, one of which is loaded at once, and one for an encoder."""
    folder = save_letters(
        save_tiny_encoder(tmp_path_factory.mktemp("rank") / "m", "bert", "text-classification", num_labels=1)
    )
    chats = [{"source": str(chat_checkpoint), "name": name, "options": OPTIONS} for name in ("one", "two")]
    groups = [
        {"name": "chats", "models": chats, "max_models_per_replica": 1},
        {"source": str(folder), "name": "rank", "options": ENCODER},
    ]
    args = {"models": groups, "cache_url": cache_url, "server": {"drain_timeout_s": 10}}
    serve.run(app(args), name="fleet-many", route_prefix="/many")
    address = f"{serve.address}/many"
    wait_until(lambda: httpx.get(f"{address}/health").status_code == 200)
    return address


def complete(url, model, num_tokens=4):
    body = {"model": model, "prompt": "abc", "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=120)


def test_models_replace_each_other_on_one_core(url):
    answers = [complete(url, name) for name in ("one", "two", "one", "two")]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.json()["model"] for answer in answers] == ["one", "two", "one", "two"]
    assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1


def test_requests_for_both_models_at_the_same_time(url):
    """A model is not unloaded while it answers."""
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda name: complete(url, name, 30), ["one", "two"] * 3))
    assert [(answer.status_code, answer.text) for answer in answers if answer.status_code != 200] == []
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [30] * 6


def test_an_encoder_is_served_by_the_same_deployment(url):
    body = {"model": "rank", "text_1": "ab", "text_2": ["ab", "cd"]}
    answer = httpx.post(f"{url}/score", json=body, timeout=60).json()
    assert len(answer["data"]) == 2
    wrong = httpx.post(f"{url}/v1/completions", json={"model": "rank", "prompt": "a"}, timeout=60)
    assert wrong.status_code == 400 and wrong.json()["error"]["code"] == "model_not_supported"
