"""Requests with LoRA adapters of their own, on quantized layers: tokens are those of each alone."""

import pytest

from optimum_neuron.errors import ConfigError, ShapeError
from tests.modeling.test_adapters import ADAPTERS, TARGETS, save_adapter
from tests.tiny import save_tiny

pytestmark = pytest.mark.full(days=2, by="file")

PROMPT = list(range(3, 27))
OPTIONS = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": -1}


@pytest.fixture(scope="module")
def model(tmp_path_factory, export):
    base = save_tiny(tmp_path_factory.mktemp("base"), "llama")
    model = export(base, max_loras=2, max_lora_rank=8, lora_target_modules=TARGETS, quantization="int8")
    for name, options in ADAPTERS.items():
        model.load_adapter(save_adapter(base, tmp_path_factory.mktemp(name) / name, **options), adapter_name=name)
    return model


def test_each_request_has_its_adapter(model):
    import torch

    names = [*ADAPTERS, "__base__"]
    expected = [
        model.generate(torch.tensor([PROMPT]), adapter_names=[name], **OPTIONS)[0, len(PROMPT) :].tolist()
        for name in names
    ]
    assert len({tuple(tokens) for tokens in expected}) == 3
    outputs = model.generate_batch([PROMPT] * 6, adapter_names=names * 2, **OPTIONS)
    assert [output.generated_tokens for output in outputs.values()] == expected * 2


def test_an_adapter_stays_while_a_request_has_it(model):
    manager = model.init_continuous_batching()
    manager.add_request(PROMPT, adapter_name="plain", **OPTIONS)
    with pytest.raises(ConfigError):
        manager.add_request(PROMPT, adapter_name="unknown")
    with pytest.raises(ConfigError) as caught:
        model.delete_adapter("plain")
    assert caught.value.details["num_requests"] == 1
    with pytest.raises(ShapeError):
        model.generate_batch([PROMPT], adapter_names=["plain", "plain"], **OPTIONS)
    manager.destroy()
    model.delete_adapter("plain")
