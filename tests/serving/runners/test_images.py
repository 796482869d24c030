"""`/v1/images/generations` through OpenAI's client, against the pipeline itself."""

from __future__ import annotations

import asyncio
import base64
import io
import time

import numpy as np
import openai
import pytest
import torch

pytest.importorskip("diffusers")
Image = pytest.importorskip("PIL.Image")

PROMPT, STEPS = "a red fish", {"num_inference_steps": 2}


def draw(client, **settings):
    extra = STEPS | settings.pop("extra_body", {})
    answer = client.images.generate(**{"model": "sd", "prompt": PROMPT, "extra_body": extra} | settings)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one.b64_json)))) for one in answer.data], answer


def test_images_are_those_of_the_pipeline(client, kinds):
    pipe = next(model for model in kinds.registry.models if model.spec.name == "sd").backend.model
    images, answer = draw(client, n=3, extra_body={"seed": 5})
    for number, image in enumerate(images):
        generator = torch.Generator().manual_seed(5 + number)
        expected = np.asarray(pipe(PROMPT, generator=generator, height=32, width=32, **STEPS).images[0])
        assert np.abs(image.astype(int) - expected.astype(int)).max() <= 1
    assert (answer.size, answer.output_format) == ("32x32", "png")
    assert [one.seed for one in answer.data] == [5, 6, 7]


def test_sizes_and_forms(client):
    images, answer = draw(client, size="48x32", output_format="jpeg", extra_body={"negative_prompt": "blue"})
    assert images[0].shape == (32, 48, 3) and answer.size == "48x32"
    assert base64.b64decode(answer.data[0].b64_json)[:2] == b"\xff\xd8"


@pytest.mark.parametrize(
    "change",
    [{"size": "64x64"}, {"size": "big"}, {"n": 11}, {"response_format": "url"}, {"prompt": ""}, {"style": "vivid"}],
    ids=str,
)
def test_bad_requests_are_errors_of_the_client(client, change):
    with pytest.raises(openai.BadRequestError) as caught:
        draw(client, **change)
    assert caught.value.param == next(iter(change))


def test_a_client_that_leaves_ends_its_steps(url, kinds):
    backend = next(model for model in kinds.registry.models if model.spec.name == "sd").backend

    async def leave():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as shared:
            extra = {"num_inference_steps": 1000}
            request = asyncio.ensure_future(shared.images.generate(model="sd", prompt=PROMPT, extra_body=extra))
            while not backend.num_running:
                await asyncio.sleep(0.01)
            request.cancel()

    asyncio.run(leave())
    end = time.monotonic() + 10  # all steps would take longer
    while backend.num_running and time.monotonic() < end:
        time.sleep(0.01)
    assert not backend.num_running
