"""Recipe: train a text-to-image model of handwritten digits on a simulated NeuronCore, then compile it and draw.

    python models/diffusion/digits.py
    python models/diffusion/digits.py --prompts "a handwritten seven" "the digit 4"

The data is MNIST, fetched from a package. An autoencoder and then a U-Net with its text encoder are trained from random
weights. --output/pipeline is a stock diffusers pipeline, --output/compiled its export, and --output/digits.png a grid
of ten images for each digit. A classifier, trained on the same data, counts how many of them it recognizes.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional as F
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, set_seed

from optimum_neuron import NeuronDiffusionPipeline, NeuronTrainer, NeuronTrainingArguments
from optimum_neuron.checkpoints import read_rows

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CAPTIONS = ("a handwritten {word}", "the digit {digit}", "a {word} written by hand", "{word}", "the number {digit}")
UNCAPTIONED = 0.1
"""Share of images that are trained without a caption, for classifier-free guidance."""
MAX_TOKENS = 12
NUM_IMAGES = 10
"""Images of a prompt."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", nargs="*", default=[], help="further images to draw")
    parser.add_argument("--output", type=Path, default=Path("digits_out"), help="folder of the pipeline and images")
    parser.add_argument("--max_steps", type=int, default=1000, help="steps of training the U-Net")
    parser.add_argument("--autoencoder_steps", type=int, default=400, help="steps of training the autoencoder")
    parser.add_argument("--classifier_steps", type=int, default=1000, help="steps of training the classifier")
    parser.add_argument("--batch_size", type=int, default=64, help="images of a step")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="at its highest")
    parser.add_argument("--num_inference_steps", type=int, default=20, help="steps of drawing")
    parser.add_argument("--guidance_scale", type=float, default=3.0, help="how much the prompt counts")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def mnist(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of 32 x 32 pixels from -1 to 1, and their digits."""
    rows = [row for row in read_rows("mnist") if row["split"] == split]
    pixels = bytearray(b"".join(base64.b64decode(row["pixels"]) for row in rows))
    images_BCHW = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, 1, 28, 28)
    images_BCHW = F.pad(images_BCHW, (2, 2, 2, 2)) / 127.5 - 1
    return images_BCHW, torch.tensor([row["digit"] for row in rows])


class Autoencoding(nn.Module):
    """The loss of an autoencoder: squared error, and a weak pull of the latents towards a normal distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.vae = AutoencoderKL(
            in_channels=1,
            out_channels=1,
            latent_channels=4,
            block_out_channels=(16, 32, 32),
            down_block_types=("DownEncoderBlock2D",) * 3,
            up_block_types=("UpDecoderBlock2D",) * 3,
            norm_num_groups=8,
            mid_block_add_attention=False,
            sample_size=32,
        )

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        latents = self.vae.encode(images).latent_dist
        decoded = self.vae.decode(latents.sample()).sample
        return {"loss": F.mse_loss(decoded, images) + 1e-5 * latents.kl().mean()}


class Denoising(nn.Module):
    """The loss of a U-Net and its text encoder: the velocity between an image's latents and noise."""

    def __init__(self, tokenizer: CLIPTokenizer) -> None:
        super().__init__()
        self.text_encoder = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(tokenizer),
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=MAX_TOKENS,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
        self.unet = UNet2DConditionModel(
            sample_size=8,
            layers_per_block=1,
            block_out_channels=(64, 128),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=64,
            attention_head_dim=4,
            norm_num_groups=16,
        )
        self.scheduler = DDIMScheduler(
            beta_schedule="squaredcos_cap_v2",
            prediction_type="v_prediction",
            timestep_spacing="trailing",
            clip_sample=False,
            steps_offset=1,
        )

    def forward(self, latents: torch.Tensor, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        noise = torch.randn_like(latents)
        timesteps = torch.randint(self.scheduler.config.num_train_timesteps, (len(latents),), device=latents.device)
        text = self.text_encoder(input_ids).last_hidden_state
        velocity = self.unet(self.scheduler.add_noise(latents, noise, timesteps), timesteps, text).sample
        return {"loss": F.mse_loss(velocity, self.scheduler.get_velocity(latents, noise, timesteps))}


class Classifying(nn.Module):
    """A small convolutional network for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 10)),
        )

    def forward(self, images: torch.Tensor, digits: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(images)
        return {"loss": F.cross_entropy(logits, digits), "logits": logits}

    @torch.no_grad()
    def accuracy(self, images: torch.Tensor, digits: torch.Tensor) -> float:
        """Return the share of images that are recognized."""
        return (self.cpu().eval()(images, digits)["logits"].argmax(-1) == digits).float().mean().item()


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Rows that a function makes."""

    def __init__(self, num_rows: int, row: Callable[[int], dict[str, Any]]) -> None:
        self.num_rows, self.row = num_rows, row

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.row(index)


def train(module: nn.Module, rows: Rows, args: argparse.Namespace, *, max_steps: int) -> None:
    """Train a module on the device; its weights are on the host afterwards."""
    configuration = NeuronTrainingArguments(
        output_dir=str(args.output / "training"),
        max_steps=max_steps,
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max_steps // 20,
        logging_steps=max(1, max_steps // 10),
        optim="adamw_torch",
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    start = time.perf_counter()
    trainer = NeuronTrainer(module, configuration, train_dataset=rows)
    trainer.train()
    losses = [f"{entry['loss']:.3f}" for entry in trainer.state.log_history if "loss" in entry]
    print(f"{type(module).__name__}: {time.perf_counter() - start:.0f} s, loss {', '.join(losses)}", flush=True)
    module.cpu().eval()


def make_tokenizer() -> CLIPTokenizer:
    """Return a tokenizer of characters and the words of the captions."""
    texts = [text.format(word=word, digit=digit) for text in CAPTIONS for digit, word in enumerate(NUMBERS)]
    learned = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learned.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<|startoftext|>", "<|endoftext|>"]
    learned.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=special, end_of_word_suffix="</w>"))
    model = json.loads(learned.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return CLIPTokenizer(vocab=model["vocab"], merges=merges, model_max_length=MAX_TOKENS)


def make_pipeline(args: argparse.Namespace, images: torch.Tensor, digits: torch.Tensor) -> StableDiffusionPipeline:
    """Train the components of a pipeline."""
    autoencoding, tokenizer = Autoencoding(), make_tokenizer()
    train(autoencoding, Rows(len(images), lambda i: {"images": images[i]}), args, max_steps=args.autoencoder_steps)
    vae = autoencoding.vae
    with torch.no_grad():
        latents = torch.cat([vae.encode(part).latent_dist.mean for part in images.split(100)])
    vae.register_to_config(scaling_factor=1 / latents.std().item())
    latents *= vae.config.scaling_factor

    def tokens(text: str) -> torch.Tensor:
        return tokenizer(text, padding="max_length", return_tensors="pt").input_ids[0]

    uncaptioned, order = tokens(""), random.Random(0)
    captions = [
        [tokens(text.format(word=word, digit=digit)) for text in CAPTIONS] for digit, word in enumerate(NUMBERS)
    ]

    def row(index: int) -> dict[str, Any]:
        caption = uncaptioned if order.random() < UNCAPTIONED else order.choice(captions[digits[index]])
        return {"latents": latents[index], "input_ids": caption}

    denoising = Denoising(tokenizer)
    print(f"{sum(p.numel() for m in (vae, denoising) for p in m.parameters()) / 1e6:.1f} million parameters")
    train(denoising, Rows(len(images), row), args, max_steps=args.max_steps)
    return StableDiffusionPipeline(
        vae=vae,
        text_encoder=denoising.text_encoder,
        tokenizer=tokenizer,
        unet=denoising.unet,
        scheduler=DDIMScheduler.from_config(denoising.scheduler.config),  # training moved its tables to the device
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def compiled(args: argparse.Namespace) -> Any:
    """Return the saved pipeline, compiled for ten images of a prompt."""
    start = time.perf_counter()
    pipeline = NeuronDiffusionPipeline.from_pretrained(
        args.output / "pipeline",
        export=True,
        batch_size=1,
        num_images_per_prompt=NUM_IMAGES,
        height=32,
        width=32,
        optlevel=args.optlevel,
    )
    pipeline.set_progress_bar_config(disable=True)
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    return pipeline


def draw(pipeline: Any, prompt: str, args: argparse.Namespace, *, seed: int = 0) -> torch.Tensor:
    """Return ten images of a prompt, with values from 0 to 1."""
    images = pipeline(
        prompt,
        num_images_per_prompt=NUM_IMAGES,
        num_inference_steps=args.num_inference_steps,
        guidance_scale=args.guidance_scale,
        generator=torch.Generator().manual_seed(seed),
        output_type="np",
    ).images
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def save_grid(images: torch.Tensor, path: Path) -> None:
    """Write an image for each row of images, side by side."""
    rows, columns, _, height, width = images.shape
    pixels = images.permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width)
    Image.fromarray((pixels * 255).round().byte().numpy()).save(path, optimize=True)


def main() -> None:
    """Train, save, compile, draw, and count."""
    args = arguments()
    set_seed(0)
    images, digits = mnist("train")
    classifying = Classifying()
    labeled = Rows(len(images), lambda i: {"images": images[i], "digits": digits[i]})
    train(classifying, labeled, args, max_steps=args.classifier_steps)
    print(f"classifier on the test images of MNIST: {classifying.accuracy(*mnist('test')):.1%}", flush=True)
    make_pipeline(args, images, digits).save_pretrained(args.output / "pipeline")
    pipeline = compiled(args)
    pictures = torch.stack(
        [draw(pipeline, f"a handwritten {word}", args, seed=digit) for digit, word in enumerate(NUMBERS)]
    )
    save_grid(pictures, args.output / "digits.png")
    expected = torch.arange(10).repeat_interleave(NUM_IMAGES)
    accuracy = classifying.accuracy(pictures.flatten(0, 1) * 2 - 1, expected)
    print(f"recognized: {accuracy:.0%} of {len(expected)} images in {args.output / 'digits.png'}")
    for number, prompt in enumerate(args.prompts):
        save_grid(draw(pipeline, prompt, args)[None], args.output / f"prompt_{number}.png")


if __name__ == "__main__":
    main()
