"""Files of adapters for tiny pipelines: LoRA in the names of PEFT, diffusers and kohya, and an IP-Adapter.

save_lora(folder, make_pipeline("sd"), names="kohya")   # pytorch_lora_weights.safetensors
save_ip_adapter(folder, make_pipeline("sd").unet)       # models/ip-adapter.safetensors, models/image_encoder/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny_pipelines.components import CLIP_VISION, build

LORA_NAMES = ("peft", "diffusers", "kohya")
_TARGETS = ("to_q", "to_k", "to_v", "to_out.0")


def save_lora(folder: Path, pipeline: Any, *, names: str = "peft", rank: int = 2, seed: int = 0) -> Path:
    """Write random LoRA weights of all attention layers of the U-Net or transformer.

    Args:
        folder: Where `pytorch_lora_weights.safetensors` goes.
        pipeline: The stock pipeline that the adapter is for.
        names: One of `LORA_NAMES`.
        rank: Its rank.
        seed: The seed of its weights.
    """
    import torch
    from safetensors.torch import save_file

    part = "unet" if hasattr(pipeline, "unet") else "transformer"
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Any] = {}
    for path, module in getattr(pipeline, part).named_modules():
        if not path.endswith(_TARGETS):
            continue
        down = torch.randn(rank, module.in_features, generator=generator) * 0.3
        up = torch.randn(module.out_features, rank, generator=generator) * 0.3
        weights |= _named(part, path, down, up, names)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "pytorch_lora_weights.safetensors", {"format": "pt"})
    return folder


def _named(part: str, path: str, down: Any, up: Any, names: str) -> dict[str, Any]:
    """The two matrices of one layer in the names of a library."""
    import torch

    if names == "peft":
        return {f"{part}.{path}.lora_A.weight": down, f"{part}.{path}.lora_B.weight": up}
    if names == "diffusers":
        before, _, layer = path.rpartition(".to_")
        stem = f"{part}.{before}.processor.to_{layer.removesuffix('.0')}_lora"
        return {f"{stem}.down.weight": down, f"{stem}.up.weight": up}
    stem = f"lora_{part}_{path.replace('.', '_')}"
    alpha = {f"{stem}.alpha": torch.tensor(float(len(down)))}
    return alpha | {f"{stem}.lora_down.weight": down, f"{stem}.lora_up.weight": up}


def save_ip_adapter(folder: Path, unet: Any, *, seed: int = 0) -> Path:
    """Write an IP-Adapter of a U-Net as its repositories do: `models/`, with the image encoder beside the weights."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) * 0.3

    width, projection = unet.config.cross_attention_dim, CLIP_VISION["projection_dim"]
    weights = {"image_proj.proj.weight": normal(4 * width, projection), "image_proj.proj.bias": normal(4 * width)}
    weights |= {"image_proj.norm.weight": 1 + normal(width), "image_proj.norm.bias": normal(width)}
    crossing = [name for name in unet.attn_processors if ".attn2." in name]
    for index, name in enumerate(crossing):
        size = unet.get_submodule(name.removesuffix(".processor")).inner_dim
        # Files number the processors of self-attention too.
        weights |= {f"ip_adapter.{2 * index + 1}.to_{side}_ip.weight": normal(size, width) for side in "kv"}
    folder = folder / "models"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "ip-adapter.safetensors")
    build("CLIPVisionModelWithProjection", CLIP_VISION, seed=seed).save_pretrained(folder / "image_encoder")
    return folder.parent
