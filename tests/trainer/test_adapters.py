"""Adapters of PEFT: trained, saved so that plain PEFT loads them, resumed."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises
from tests.trainer.conftest import losses

peft = pytest.importorskip("peft")


def lora(**options):
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options)


@pytest.fixture
def make_adapter_model(llama):
    def make():
        torch.manual_seed(0)
        return peft.get_peft_model(copy.deepcopy(llama), lora())

    return make


def test_losses_match_cpu(train, make_adapter_model, sentences):
    actual, expected = (train(make_adapter_model(), sentences, upstream=upstream) for upstream in (False, True))
    assert losses(actual) == pytest.approx(losses(expected), abs=1e-4) and losses(actual)[-1] < losses(actual)[0]


def test_configuration_is_enough(train, tmp_path, llama, sentences):
    trainer = train(llama, sentences, peft_config=lora(), save_strategy="steps", save_steps=2)
    folder = tmp_path / "out" / "checkpoint-4"
    assert (folder / "adapter_model.safetensors").is_file() and not (folder / "model.safetensors").exists()
    assert [path.name for path in (folder / "adapter_default").iterdir()] == ["adapter_config.json"]
    plain = peft.PeftModel.from_pretrained(copy.deepcopy(llama), folder)
    ids = sentences[0]["input_ids"][None]
    trainer.model.eval()
    with torch.no_grad():
        assert torch.allclose(trainer.model.cpu()(ids).logits, plain.eval()(ids).logits, atol=1e-6)


def test_seed_initializes_adapter(make, llama, sentences):
    first, same, other = (make(llama, sentences, peft_config=lora(), seed=seed) for seed in (1, 1, 2))
    weights = [dict(trainer.model.named_parameters()) for trainer in (first, same, other)]
    (name, *_) = [name for name in weights[0] if "lora_A" in name]
    assert torch.equal(weights[0][name], weights[1][name]) and not torch.equal(weights[0][name], weights[2][name])


def test_adapter_training_has_no_estimate(make, llama, sentences):
    with raises(ConfigError, option="enable_mfu_metrics"):
        make(llama, sentences, peft_config=lora(), enable_mfu_metrics=True)


def test_model_from_scratch(train, llama, sentences):
    for init in (lambda: copy.deepcopy(llama), lambda trial: copy.deepcopy(llama)):
        trainer = train(None, sentences, model_init=init, peft_config=lora())
        assert isinstance(trainer.model, peft.PeftModel)


def test_resumed_run_matches_uninterrupted_run(train, tmp_path, llama, sentences):
    full_run = train(llama, sentences, peft_config=lora(lora_dropout=0.1), save_strategy="steps", save_steps=2)
    resumed_run = train(
        llama, sentences, peft_config=lora(lora_dropout=0.1), resume=str(tmp_path / "out" / "checkpoint-2")
    )
    assert losses(full_run) == losses(resumed_run)


def test_checkpoints_of_another_kind(train, tmp_path, llama, sentences):
    train(llama, sentences, peft_config=lora(), save_strategy="steps", save_steps=2)
    folder = str(tmp_path / "out" / "checkpoint-2")
    with raises(ModelError, option="peft_config", folder=folder):
        train(llama, sentences, resume=folder)
    with raises(ModelError, folder=folder) as error:
        train(llama, sentences, resume=folder, peft_config=peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    train(llama, sentences, output_dir=str(tmp_path / "whole"), save_strategy="steps", save_steps=2)
    assert "q_proj" in error.value.details["differences"]
    with raises(ModelError, option="peft_config", folder=str(tmp_path / "whole" / "checkpoint-2")):
        train(llama, sentences, resume=str(tmp_path / "whole" / "checkpoint-2"), peft_config=lora())
