"""A server in a thread with a tiny chat model, started once for the tests of this folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

PACKAGES = ("aiohttp", "fastapi", "httpx", "llguidance", "openai", "prometheus_client", "uvicorn")
MISSING = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
collect_ignore_glob = ["test_*.py", "runners/*.py", "clients/*.py"] if MISSING else []
"""Without the extras `serve` and `test`, these files cannot be imported."""

OPTIONS: dict[str, Any] = {
    "batch_size": 4,
    "sequence_length": 192,
    "block_size": 8,
    "prefill_chunk_size": 64,
    "extend_length": 1,
    "optlevel": "1",
    "torch_dtype": "float32",
    "disable_validation": True,
}
KEY = "secret"

TEMPLATE = (
    "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function']['arguments']['a'] }}</tool_call>{% endfor %}"
    "{% endfor %}{% if tools %}{{ tools | length }}{% endif %}"
    "{% if add_generation_prompt %}a:{% endif %}{# <think> #}"
)
"""It has marks of reasoning and of tool calls, so answers are taken apart."""


@pytest.fixture(scope="package")
def chat_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with room for chats, and a template with tools."""
    from transformers import AutoTokenizer

    folder = save_tiny(
        tmp_path_factory.mktemp("chat") / "tiny", "llama", vocab_size=NUM_BYTE_TOKENS, max_position_embeddings=192
    )
    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def deployment(chat_checkpoint: Path, environment: None) -> Any:
    """The deployment of `url`."""
    from optimum_neuron.serving import Deployment, ServeOptions, model_specs

    options = ServeOptions(port=0, api_key=(KEY,), max_queue_size=6, max_body_bytes=100_000, drain_timeout_s=5)
    return Deployment(model_specs((str(chat_checkpoint),), options, OPTIONS), options)


@pytest.fixture(scope="package")
def url(deployment: Any) -> Iterator[str]:
    """The address of a running server."""
    from optimum_neuron.serving import running_server

    with running_server(deployment) as url:
        yield url


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[Any]:
    """OpenAI's own client."""
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="package")
def generator(deployment: Any, url: str) -> Any:
    """What answers for the tiny model."""
    return deployment.registry.models[0].backend
