"""Options of Optimum Neuron's `export neuron` that decide nothing here, and what is added to diffusion pipelines.

They are passed on unchanged: `exporters/peer_options.py` defines the effect of each.
"""

from __future__ import annotations

import argparse

from .arguments import positive_int

_NUMBERS, _SWITCHES = ("patch_size", "vae_scale_factor"), ("disable_fast_relayout", "disable_fallback")
_ADDITIONS = {
    "unet": "UNet in place of the pipeline's: folder or id",
    "controlnet_ids": "one or several ControlNets",
    "lora_model_ids": "LoRA adapters, added to the weights; --adapter merges one into a transformers model",
    "lora_weight_names": "file of each LoRA adapter",
    "lora_adapter_names": "name of each LoRA adapter",
    "lora_scales": "scale of each LoRA adapter (default: 1)",
    "ip_adapter_id": "image adapters (IP-Adapter)",
    "ip_adapter_subfolder": "folder of each image adapter",
    "ip_adapter_weight_name": "file of each image adapter",
    "ip_adapter_scale": "scale of each image adapter (default: 1)",
}
_OF_ONE_VALUE, _OF_NUMBERS = ("unet",), ("lora_scales", "ip_adapter_scale")


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    from ..exporters import WITHOUT_EFFECT
    from ..sources.pipelines import ADDITION_SYNONYMS

    group = parser.add_argument_group("options of Optimum Neuron without a meaning here")
    for name in (*_NUMBERS, *_SWITCHES):
        meaning = f"changes nothing: {WITHOUT_EFFECT[name]}"
        if name in _NUMBERS:
            group.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
        else:
            group.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=meaning)
    additions = parser.add_argument_group("what is added to a diffusion pipeline")
    for name, meaning in _ADDITIONS.items():
        num_values, kind = None if name in _OF_ONE_VALUE else "+", float if name in _OF_NUMBERS else str
        flags = [f"--{name}", *(f"--{other}" for other, ours in ADDITION_SYNONYMS.items() if ours == name)]
        additions.add_argument(*flags, dest=name, nargs=num_values, type=kind, metavar="VALUE", help=meaning)
