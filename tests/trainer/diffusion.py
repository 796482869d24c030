"""The calls of diffusers' example scripts for training, in their order, on a tiny Stable Diffusion; for tests.

`text_to_image_lora` trains adapters of a U-Net as text-to-image and DreamBooth scripts do; `text_to_image` trains the
U-Net itself, with averaged weights. Both take an `Accelerator`, and know nothing of this project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel, cast_training_params, compute_snr
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch.nn import functional as F

SIDE, NUM_ROWS, BATCH_SIZE = 32, 8, 2
DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Images with a caption each, tokenized."""

    def __init__(self, tokenizer: Any) -> None:
        texts = [f"image number {row}" for row in range(NUM_ROWS)]
        self.input_ids = tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt").input_ids
        self.pixel_values = torch.rand(NUM_ROWS, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.pixel_values[index], "input_ids": self.input_ids[index]}


def text_to_image_lora(
    accelerator: Any,
    folder: Path,
    output: Path,
    *,
    num_steps: int = 4,
    save_at: int | None = None,
    resume_from: Path | None = None,
    checkpointing: bool = False,
) -> list[float]:
    """Train adapters, save them, and return the losses of the steps that ran."""
    parts, dtype = _parts(folder), DTYPES[accelerator.mixed_precision]
    unet = parts["unet"]
    for name in ("unet", "vae", "text_encoder"):
        parts[name].requires_grad_(False)
        parts[name].to(accelerator.device, dtype=dtype)
    names = ["to_k", "to_q", "to_v", "to_out.0"]
    unet.add_adapter(LoraConfig(r=4, lora_alpha=4, init_lora_weights="gaussian", target_modules=names))
    if dtype != torch.float32:
        cast_training_params(unet, dtype=torch.float32)
    if checkpointing:
        unet.enable_gradient_checkpointing()
    weights = [parameter for parameter in unet.parameters() if parameter.requires_grad]
    losses, unet = _train(accelerator, parts, weights, output, num_steps, save_at=save_at, resume_from=resume_from)
    unet = accelerator.unwrap_model(unet).to(torch.float32)
    adapter = convert_state_dict_to_diffusers(get_peft_model_state_dict(unet))
    StableDiffusionPipeline.save_lora_weights(output, unet_lora_layers=adapter, safe_serialization=True)
    return losses


def text_to_image(accelerator: Any, folder: Path, output: Path, *, num_steps: int = 4) -> list[float]:
    """Train a U-Net with averaged weights, save the pipeline, and return the losses."""
    parts = _parts(folder)
    unet = parts["unet"].train()
    for name in ("vae", "text_encoder"):
        parts[name].requires_grad_(False)
        parts[name].to(accelerator.device)
    average = EMAModel(unet.parameters(), model_cls=UNet2DConditionModel, model_config=unet.config)
    average.to(accelerator.device)
    losses, unet = _train(accelerator, parts, list(unet.parameters()), output, num_steps, average=average)
    unet = accelerator.unwrap_model(unet)
    average.copy_to(unet.parameters())
    StableDiffusionPipeline.from_pretrained(folder, unet=unet, safety_checker=None).save_pretrained(output)
    return losses


def validation_image(accelerator: Any, folder: Path, adapter: Path | None = None) -> torch.Tensor:
    """Draw an image on the accelerator's device, with its generator, as scripts do after an epoch."""
    pipeline = StableDiffusionPipeline.from_pretrained(folder, safety_checker=None).to(accelerator.device)
    pipeline.set_progress_bar_config(disable=True)
    if adapter is not None:
        pipeline.load_lora_weights(adapter)
    generator = torch.Generator(device=accelerator.device).manual_seed(0)
    with torch.autocast(accelerator.device.type, enabled=accelerator.mixed_precision != "no"):
        image = pipeline("image number 1", num_inference_steps=2, generator=generator, output_type="pt").images
    return image.float().cpu()


def _parts(folder: Path) -> dict[str, Any]:
    pipeline = StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    scheduler = DDPMScheduler.from_pretrained(folder, subfolder="scheduler")
    return {**pipeline.components, "scheduler": scheduler}


def _train(
    accelerator: Any,
    parts: dict[str, Any],
    weights: list[torch.nn.Parameter],
    output: Path,
    num_steps: int,
    *,
    save_at: int | None = None,
    resume_from: Path | None = None,
    average: EMAModel | None = None,
) -> tuple[list[float], Any]:
    """Run the loop that the scripts share."""
    optimizer = torch.optim.AdamW(weights, lr=1e-2)
    loader = torch.utils.data.DataLoader(Rows(parts["tokenizer"]), batch_size=BATCH_SIZE)
    schedule = get_scheduler("constant", optimizer=optimizer, num_warmup_steps=0, num_training_steps=num_steps)
    unet, optimizer, loader, schedule = accelerator.prepare(parts["unet"], optimizer, loader, schedule)
    first = 0
    if resume_from is not None:
        accelerator.load_state(str(resume_from))
        first = int(resume_from.name.split("-")[1])
    losses: list[float] = []
    unet.train()
    for step, batch in enumerate(loader):
        if not first <= step < num_steps:
            continue
        with accelerator.accumulate(unet):
            loss = _loss(unet, parts, batch, seed=step)
            losses.append(float(accelerator.gather(loss.detach().repeat(BATCH_SIZE)).mean()))
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if average is not None:
            average.step(unet.parameters())
        if step + 1 == save_at:
            accelerator.save_state(str(output / f"checkpoint-{step + 1}"))
    accelerator.wait_for_everyone()
    return losses, unet


def _loss(unet: Any, parts: dict[str, Any], batch: dict[str, torch.Tensor], *, seed: int) -> torch.Tensor:
    """The error of the noise, weighted by its signal-to-noise ratio; the noise is the same on all devices."""
    vae, scheduler, pixels = parts["vae"], parts["scheduler"], batch["pixel_values"]
    latents = vae.encode(pixels.to(dtype=vae.dtype)).latent_dist.mode() * vae.config.scaling_factor
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(latents.shape, generator=generator).to(latents)
    timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),), generator=generator)
    timesteps = timesteps.to(latents.device).long()
    text = parts["text_encoder"](batch["input_ids"], return_dict=False)[0]
    noisy = scheduler.add_noise(latents, noise, timesteps)
    predicted = unet(noisy, timesteps, text, return_dict=False)[0]
    snr = compute_snr(scheduler, timesteps)
    weight = torch.stack([snr, 5.0 * torch.ones_like(timesteps)], dim=1).min(dim=1)[0] / snr
    error = F.mse_loss(predicted.float(), noise.float(), reduction="none")
    return (error.mean(dim=[1, 2, 3]) * weight).mean()
