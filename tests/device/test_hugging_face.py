"""transformers, accelerate and diffusers on the device, as their users call them: nothing of ours is imported.

The libraries look for `torch_neuronx` (distribution in sdk/) before they choose the device by themselves.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.accelerated import loop
from tests.trainer.conftest import losses, make_trainer

IDS = torch.arange(8)[None]

by_themselves = pytest.mark.skipif(
    importlib.util.find_spec("torch_neuronx") is None, reason="the libraries look for torch_neuronx (pip install ./sdk)"
)


@pytest.fixture(scope="module")
def llama(one_layer):
    return one_layer


@pytest.fixture(scope="module")
def saved_llama(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    llama.save_pretrained(folder)
    return folder


def trained(llama: nn.Module, folder: Path, resume: Path | None = None, **options: Any) -> Any:
    """transformers' Trainer after four steps of a copy of the model."""
    data = [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(8)]
    trainer = make_trainer(folder, llama, data, upstream=True, **{"use_cpu": False, **options})
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return trainer


@pytest.mark.full(days=4)
@by_themselves
def test_script_without_importing_optimum_neuron(new_python):
    result = new_python("""
from transformers import TrainingArguments
from transformers.utils import is_torch_bf16_available_on_device, is_torch_neuron_available
from accelerate import Accelerator, PartialState

print(is_torch_neuron_available(), is_torch_neuron_available(check_device=True))
print(TrainingArguments(output_dir="unused", report_to=[]).device, Accelerator().device, PartialState().device)
print(is_torch_bf16_available_on_device("neuron"))
""")
    assert result.stdout.splitlines() == ["True True", "neuron:0 neuron neuron", "True"], result


@pytest.mark.full(days=3)
@by_themselves
@pytest.mark.parametrize("options", [{}, {"bf16": True}, {"bf16": True, "activation_checkpointing": True}], ids=str)
def test_trainer_matches_cpu(llama, tmp_path, options):
    actual = trained(llama, tmp_path, **options)
    assert actual.args.device == actual.model.device == torch.device("neuron:0")
    expected = trained(llama, tmp_path, use_cpu=True, **options)
    assert losses(actual) == losses(expected) and losses(actual)[-1] < losses(actual)[0]


@by_themselves
def test_trainer_resumes(llama, tmp_path):
    full_run = trained(llama, tmp_path, save_strategy="steps", save_steps=2)
    resumed_run = trained(llama, tmp_path, resume=tmp_path / "checkpoint-2")
    assert losses(full_run) == losses(resumed_run) and resumed_run.model.device.type == "neuron"
    for actual, expected in zip(full_run.model.parameters(), resumed_run.model.parameters(), strict=True):
        assert torch.equal(actual, expected)


@by_themselves
def test_trainer_compiles_with_devices_backend(tmp_path):
    from transformers import TrainingArguments

    assert TrainingArguments(output_dir=str(tmp_path), torch_compile=True).torch_compile_backend == "neuron"


@by_themselves
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerator_trains(llama, precision):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(mixed_precision=precision)
    result, *_ = loop(accelerator, llama)
    assert accelerator.device.type == "neuron" and result[-1] < result[0]
    AcceleratorState._reset_state(True)


def test_generated_tokens_match_cpu(llama):
    expected = llama.generate(IDS, max_new_tokens=8, do_sample=False)
    actual = copy.deepcopy(llama).to("neuron").generate(IDS.to("neuron"), max_new_tokens=8, do_sample=False)
    assert actual.device.type == "neuron" and torch.equal(actual.cpu(), expected)


@pytest.mark.full(days=4)
def test_generation_with_static_cache_compiles_by_itself(llama):
    expected = llama.generate(IDS, max_new_tokens=8, do_sample=False)
    torch._dynamo.reset()
    model = copy.deepcopy(llama).to("neuron")
    actual = model.generate(IDS.to("neuron"), max_new_tokens=8, do_sample=False, cache_implementation="static")
    assert torch.equal(actual.cpu(), expected)
    assert len(torch.neuron.compile_report().graphs) > 0


@pytest.mark.parametrize("device_map", [{"": "neuron"}, "neuron", {"": "neuron:1"}], ids=str)
def test_models_load_onto_device(llama, saved_llama, device_map):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(saved_llama, device_map=device_map)
    assert {p.device.type for p in model.parameters()} == {"neuron"}
    assert torch.equal(model(IDS.to(model.device)).logits.cpu(), llama(IDS).logits)


def test_model_on_two_cores(llama, saved_llama):
    from transformers import AutoModelForCausalLM

    first, second = "neuron:0", "neuron:1"
    placed = {"model.embed_tokens": first, "model.layers": second, "model.rotary_emb": second, "model.norm": second}
    model = AutoModelForCausalLM.from_pretrained(saved_llama, device_map={**placed, "lm_head": second})
    assert {str(p.device) for p in model.parameters()} == {first, second}
    assert torch.equal(model(IDS.to(first)).logits.cpu(), llama(IDS).logits)


def test_accelerate_dispatches_checkpoint_to_device(tmp_path):
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


def test_pipelines_accept_device(checkpoint):
    from transformers import pipeline

    results = []
    for device in ("neuron", "cpu"):
        pipe = pipeline("text-generation", model=str(checkpoint), device=device)
        assert pipe.model.device.type == pipe.device.type == device
        results.append(pipe("abc", max_new_tokens=4, do_sample=False))
    assert results[0] == results[1]


def test_diffusers_accept_device():
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    sizes = dict(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(32, 32))
    blocks = dict(down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    unet = diffusers.UNet2DModel(**sizes, **blocks, norm_num_groups=8)
    pipe = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(num_train_timesteps=4))
    pipe.set_progress_bar_config(disable=True)
    images = []
    for device in ("cpu", "neuron"):
        pipe.to(device)
        assert pipe.device.type == device
        generator = torch.Generator().manual_seed(0)
        images.append(pipe(generator=generator, num_inference_steps=2, output_type="np").images)
    assert (images[0] == images[1]).all()
