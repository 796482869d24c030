"""Several replicas of a model behind one port, each on cores of its own."""

from __future__ import annotations

import asyncio

import pytest
import torch
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families
from transformers import AutoModelForCausalLM, AutoTokenizer

from optimum_neuron.errors import ConfigError, CoreBusyError
from optimum_neuron.serving import Deployment, ServeOptions, model_specs, running_server
from tests.serving.conftest import OPTIONS

PROMPTS = ("One", "Two", "Three", "Four", "Five", "Six")


def make_deployment(checkpoint, num_replicas, **options):
    served = ServeOptions(port=0, served_model_name=("tiny",))
    specs = model_specs((str(checkpoint),), served, {**OPTIONS, "batch_size": 1, **options})
    return Deployment(specs, served, num_replicas=num_replicas)


@pytest.mark.full(days=4)
def test_requests_are_shared_and_answered_as_by_transformers(chat_checkpoint, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")  # with cores that no other test holds
    deployment = make_deployment(chat_checkpoint, 2)

    async def answers(url):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            options = {"model": "tiny", "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
            calls = (client.completions.create(prompt=prompt, **options) for prompt in PROMPTS)
            return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

    with running_server(deployment) as url:
        texts = asyncio.run(answers(url))
        (model,) = deployment.registry.models
        cores = [{ledger.core_id for ledger in replica.ledgers} for replica in model.replicas]
        counts = [replica.manager.engine.counters.prompt_tokens_total for replica in model.replicas]
        assert len(cores) == 2 and not cores[0] & cores[1]
        assert deployment.health()[1]["models"]["tiny"]["replicas"] == 2
        families = {one.name: one for one in text_string_to_metric_families(deployment.metrics.text().decode())}
        assert [sample.value for sample in families["vllm:prompt_tokens"].samples] == [sum(counts)]
        assert {s.labels["neuroncore"] for s in families["neuron_hbm_size_bytes"].samples} == {
            str(core) for core in cores[0] | cores[1]
        }
    tokenizer, reference = (kind.from_pretrained(chat_checkpoint) for kind in (AutoTokenizer, AutoModelForCausalLM))
    for prompt, text in zip(PROMPTS, texts, strict=True):
        ids = torch.tensor([tokenizer(prompt).input_ids])
        expected = reference.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False, pad_token_id=0)
        assert text == tokenizer.decode(expected[0, ids.shape[1] :], skip_special_tokens=True)
    assert all(counts), "each replica has read prompts"


def test_lack_of_cores_is_reported_before_a_compile(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    with pytest.raises(ConfigError) as caught:
        make_deployment("org/model", 2, tensor_parallel_size=2)
    details = {"option": "num_replicas", "value": 2, "needed": 4, "usable": 2}
    assert caught.value.details == details


@pytest.mark.full(days=2)
def test_replicas_never_share_a_core(chat_checkpoint, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    deployment = make_deployment(chat_checkpoint, 2)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "3")
    (model,) = deployment.registry.models
    model.load()
    assert isinstance(model.error, CoreBusyError) and not model.replicas
    assert model.error.details == {"num_replicas": 2, "num_cores": 1, "shared": [3]}
