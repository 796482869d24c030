"""Training of diffusion models as in diffusers' example scripts: the same on the device as on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from optimum_neuron.trainer import NeuronAccelerator
from tests.tiny_pipelines.table import save_pipeline
from tests.trainer.diffusion import text_to_image, text_to_image_lora, validation_image


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pipeline(tmp_path_factory.mktemp("pipeline"), "sd")


@pytest.fixture(scope="module")
def on_cpu(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Losses and an image of a LoRA run on the CPU."""
    AcceleratorState._reset_state(True)
    torch.manual_seed(0)
    accelerator, output = Accelerator(cpu=True), tmp_path_factory.mktemp("cpu")
    losses = text_to_image_lora(accelerator, folder, output)
    return {"losses": losses, "image": validation_image(accelerator, folder, output)}


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("precision", "checkpointing", "tolerance"), [("no", False, 1e-5), ("no", True, 1e-5), ("bf16", False, 0.03)]
)
def test_lora_matches_cpu(folder, on_cpu, tmp_path, precision, checkpointing, tolerance):
    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision=precision)
    assert accelerator.device.type == "neuron"
    losses = text_to_image_lora(accelerator, folder, tmp_path, checkpointing=checkpointing)
    assert losses == pytest.approx(on_cpu["losses"], rel=tolerance)
    image = validation_image(accelerator, folder, tmp_path)
    assert (image - on_cpu["image"]).abs().max() < 10 * tolerance
    without = validation_image(accelerator, folder)
    assert (image - without).abs().max() > 0


def test_lora_resumes(folder, on_cpu, tmp_path):
    torch.manual_seed(0)
    text_to_image_lora(NeuronAccelerator(), folder, tmp_path, save_at=2)
    AcceleratorState._reset_state(True)
    rest = text_to_image_lora(NeuronAccelerator(), folder, tmp_path, resume_from=tmp_path / "checkpoint-2")
    assert rest == pytest.approx(on_cpu["losses"][2:], rel=1e-5)


def test_fp16_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="fp16"):
        Accelerator(mixed_precision="fp16")


def test_unet_with_averaged_weights_matches_cpu(folder, tmp_path):
    results = []
    for accelerator_type, options in ((Accelerator, {"cpu": True}), (NeuronAccelerator, {})):
        AcceleratorState._reset_state(True)
        torch.manual_seed(0)
        accelerator = accelerator_type(**options)
        output = tmp_path / accelerator.device.type
        losses = text_to_image(accelerator, folder, output, num_steps=2)
        results.append((losses, validation_image(accelerator, output)))
    (expected, expected_image), (actual, actual_image) = results
    assert actual == pytest.approx(expected, rel=1e-5)
    assert (actual_image - expected_image).abs().max() < 1e-4
