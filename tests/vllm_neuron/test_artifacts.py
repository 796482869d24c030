"""NEURON_COMPILED_ARTIFACTS: the folder is written, then loaded; those of other models and options are refused."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.errors import ConfigError
from optimum_neuron.options.configuration import is_export
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

if importlib.util.find_spec("pydantic") is None:
    pytest.skip("pydantic is not installed", allow_module_level=True)

from optimum_neuron.vllm_neuron import (  # noqa: E402
    LLM,
    AsyncEngineArgs,
    SamplingParams,
    build_async_engine_client_from_engine_args,
)

OPTIONS = {"max_model_len": 32, "max_num_seqs": 2}
PROMPT = [5, 6, 7]


def checkpoint(folder, **options):
    save_tiny(folder, "llama", vocab_size=NUM_BYTE_TOKENS, num_hidden_layers=1, **options)
    return save_tokenizer(folder)


def tokens(folder, **options):
    llm = LLM(str(folder), **{**OPTIONS, **options})
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    (output,) = llm.generate(None, params, prompt_token_ids=PROMPT, use_tqdm=False)
    llm.llm_engine.core.close()
    return output.outputs[0].token_ids


def expected(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = model.generate(torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, eos_token_id=None)
    return ids[0, len(PROMPT) :].tolist()


async def last_tokens(folder):
    """Tokens of the engine that vLLM's benchmark of throughput runs."""
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    async with build_async_engine_client_from_engine_args(AsyncEngineArgs(model=str(folder), **OPTIONS)) as engine:
        assert (await engine.get_model_config()).max_model_len == OPTIONS["max_model_len"]
        async for output in engine.generate({"prompt_token_ids": PROMPT}, params, "a"):
            last = output
    return last.outputs[0].token_ids


@pytest.mark.full(days=4)
def test_compiled_artifacts_are_of_the_model_and_its_options(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    artifacts = tmp_path / "compiled"
    monkeypatch.setenv("NEURON_COMPILED_ARTIFACTS", str(artifacts))
    caplog.set_level("INFO")
    plain, tuned = checkpoint(tmp_path / "plain"), checkpoint(tmp_path / "tuned", seed=1)
    assert tokens(plain) == expected(plain) and is_export(artifacts)
    assert "Successfully loaded" not in caplog.text
    assert tokens(tuned) == expected(tuned) != expected(plain)
    assert f"Successfully loaded pre-compiled model artifacts from {artifacts}" in caplog.text
    assert tokens(artifacts) == expected(plain), "an exported folder is a model too"
    assert asyncio.run(last_tokens(plain)) == expected(plain)
    turned = checkpoint(tmp_path / "turned", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    for folder, changed in (
        (plain, {"max_model_len": 48}),
        (plain, {"override_neuron_config": {"token_generation_buckets": [16, 32]}}),
        (plain, {"dtype": "bfloat16"}),
        (plain, {"quantization": "int8"}),
        (plain, {"tensor_parallel_size": 2}),
        (turned, {}),
    ):
        with raises(ConfigError, folder=str(artifacts)):
            tokens(folder, **changed)
