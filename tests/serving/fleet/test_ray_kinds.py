"""Embeddings, speech, and images behind the same deployment object on two machines, with clients at the same time."""

from __future__ import annotations

import base64
import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from optimum_neuron.serving.fleet import app
from tests.serving.fleet.conftest import wait_until
from tests.serving.runners.conftest import HAS_IMAGES, HAS_SPEECH, tiny_kinds

pytestmark = [
    pytest.mark.filterwarnings(*[f"ignore::{kind}Warning" for kind in ("Deprecation", "Future", "Resource")]),
    pytest.mark.skipif(not (HAS_IMAGES and HAS_SPEECH), reason="the packages for images or speech are not installed"),
]
KINDS = ("embed", "whisper", "sd")


@pytest.fixture(scope="module")
def client(serve: Any, cache_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tiny_kinds(tmp_path_factory.mktemp("kinds"))
    models = [{"source": str(made[name][0]), "name": name, "options": made[name][1]} for name in KINDS]
    args = {"models": models, "cache_url": cache_url, "server": {"drain_timeout_s": 10}}
    serve.run(app(args), name="fleet-kinds", route_prefix="/kinds")
    address = f"{serve.address}/kinds"
    wait_until(lambda: httpx.get(f"{address}/health").status_code == 200)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=120) as client:
        yield client
    serve.delete("fleet-kinds")


def test_embeddings_of_many_clients_are_those_of_one(client):
    texts = ["ab", "cde", "f", "abcd"]
    whole = [one.embedding for one in client.embeddings.create(model="embed", input=texts).data]
    with ThreadPoolExecutor(8) as pool:
        alone = list(
            pool.map(lambda text: client.embeddings.create(model="embed", input=text).data[0].embedding, texts * 4)
        )
    np.testing.assert_allclose(alone, whole * 4, atol=1e-5)


def test_recordings_are_transcribed(client):
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).normal(0, 0.1, 14_400).astype(np.float32), 16_000, format="WAV")

    def transcribe(_: int) -> str:
        return client.audio.transcriptions.create(model="whisper", file=("a.wav", file.getvalue())).text

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(transcribe, range(4)))) == 1


def test_images_are_drawn(client):
    def draw(seed: int) -> bytes:
        extra = {"num_inference_steps": 2, "seed": seed}
        answer = client.images.generate(model="sd", prompt="a red fish", size="32x32", extra_body=extra)
        return base64.b64decode(answer.data[0].b64_json)

    with ThreadPoolExecutor(4) as pool:
        images = list(pool.map(draw, (5, 6, 5, 6)))
    assert images[:2] == images[2:] and images[0] != images[1]
