"""Training on the device is training on the CPU, bit for bit, in the `reference` numerics."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)


@pytest.fixture(scope="module")
def llama():
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES))


def losses(model: nn.Module, device: str, steps: int = 3) -> list[float]:
    """Losses of AdamW steps of a copy of the model."""
    model = copy.deepcopy(model).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.arange(64).view(2, 32).to(device)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def test_losses_of_a_llama_are_bitwise_those_of_the_cpu(llama):
    ours, theirs = losses(llama, "neuron"), losses(llama, "cpu")
    assert ours == theirs and ours[-1] < ours[0]


def test_gradient_checkpointing_changes_nothing(llama):
    model = copy.deepcopy(llama)
    model.gradient_checkpointing_enable()
    assert losses(model, "neuron") == losses(llama, "cpu")


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_optimizers(kind, options):
    torch.manual_seed(0)
    theirs = nn.Linear(4, 4)
    ours = copy.deepcopy(theirs).to("neuron")
    x = torch.randn(2, 4)
    for module, inputs in ((theirs, x), (ours, x.to("neuron"))):
        optimizer = kind(module.parameters(), lr=0.1, **options)
        for _ in range(2):
            optimizer.zero_grad()
            module(inputs).pow(2).sum().backward()
            optimizer.step()
    assert torch.equal(theirs.weight, ours.weight.cpu())


def test_generation_gives_the_tokens_of_the_cpu(llama):
    ids = torch.arange(8)[None]
    ours = copy.deepcopy(llama).to("neuron").generate(ids.to("neuron"), max_new_tokens=8, do_sample=False)
    assert ours.is_neuron and torch.equal(ours.cpu(), llama.generate(ids, max_new_tokens=8, do_sample=False))


def test_models_load_onto_the_device(llama, tmp_path):
    from transformers import AutoModelForCausalLM

    llama.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, device_map={"": "neuron"})
    assert {p.device.type for p in model.parameters()} == {"neuron"}
    ids = torch.arange(8)[None]
    assert torch.equal(model(ids.to("neuron")).logits.cpu(), llama(ids).logits)


def test_accelerate_dispatches_a_checkpoint_to_the_device(tmp_path):
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from safetensors.torch import save_file

    original = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    save_file(original.state_dict(), tmp_path / "model.safetensors")
    with init_empty_weights():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = load_checkpoint_and_dispatch(model, str(tmp_path / "model.safetensors"), device_map={"": "neuron:0"})
    assert model[0].weight.is_neuron and torch.equal(model[0].weight.cpu(), original[0].weight)


def test_pipelines_take_the_device(checkpoint):
    from transformers import pipeline

    found = []
    for device in ("neuron", "cpu"):
        made = pipeline("text-generation", model=str(checkpoint), device=device)
        assert made.model.device.type == made.device.type == device
        found.append(made("abc", max_new_tokens=4, do_sample=False))
    assert found[0] == found[1]


def test_the_trainer_trains_on_the_device(llama, tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, report_to=[], disable_tqdm=True, bf16=True, save_strategy="no"
    )
    data = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(4)]
    trainer = Trainer(model=copy.deepcopy(llama), args=arguments, train_dataset=data)
    if arguments.device.type != "neuron":
        pytest.skip("transformers sees the device where torch_neuronx can be imported")
    trainer.train()
    assert trainer.model.device.type == "neuron" and trainer.state.global_step == 2
