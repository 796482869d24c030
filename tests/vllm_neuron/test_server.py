"""`python -m vllm.entrypoints.openai.api_server` answers OpenAI's client with the tokens of transformers."""

from __future__ import annotations

import importlib.util
import os
import re
import signal

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer
from tests.tree import ROOT
from tests.warm import SEPARATE_INSTANCE, Served

for package in ("fastapi", "openai", "uvicorn"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

START = (
    "import sys, runpy; sys.path.insert(0, {folder!r}); import optimum_neuron_sim_vllm; sys.argv[0] = 'api_server'; "
    "runpy.run_module('vllm.entrypoints.openai.api_server', run_name='__main__')"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The checkpoint, and the address of its server."""
    folder = tmp_path_factory.mktemp("served") / "tiny"
    save_tiny(folder, "llama", vocab_size=NUM_BYTE_TOKENS, num_hidden_layers=1)
    save_tokenizer(folder)
    config = '{"context_encoding_buckets": [32], "skip_warmup": true}'
    words = [
        "--model",
        str(folder),
        "--port",
        "0",
        "--host",
        "127.0.0.1",
        "--max_model_len",
        "64",
        "--max-num-seqs",
        "2",
    ]
    words += ["--device", "neuron", "--override-neuron-config", config, "--served-model-name", "tiny"]
    program = START.format(folder=str(ROOT / "sdk_vllm"))
    environment = {**os.environ, "NEURON_CC_FLAGS": "-O1", "OPTIMUM_NEURON_INSTANCE": SEPARATE_INSTANCE}
    process = Served("-c", program, *words, env=environment)
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield folder, found[0]
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_openai_client_gets_tokens_of_transformers(served):
    import time

    from openai import InternalServerError, OpenAI

    folder, url = served
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    for _ in range(300):
        try:
            answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=6, temperature=0)
            break
        except InternalServerError:  # the model is compiled
            time.sleep(0.1)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokenizer.encode("Hello")])
    expected = model.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
    assert answer.choices[0].text == tokenizer.decode(expected, skip_special_tokens=True)
    (card,) = client.models.list()
    assert (card.id, card.max_model_len) == ("tiny", 64)
