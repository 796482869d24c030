"""Options of Optimum Neuron's `export neuron` that decide nothing here, have one value, or are of diffusion pipelines.

They are passed on unchanged: `exporters/peer_options.py` defines the effect of each.
"""

from __future__ import annotations

import argparse

from .arguments import positive_int

_NUMBERS = {
    "patch_size": "changes nothing: the checkpoint has the patch size",
}
_SWITCHES = {
    "disable-fast-relayout": "changes nothing: layouts are chosen by the real compiler only",
    "disable-fallback": "changes nothing: no operator runs on the host unless --allow_host_ops names it",
}
_DIFFUSION = {
    "num_images_per_prompt": "images per prompt",
    "unet": "UNet to use in place of the pipeline's",
    "controlnet_ids": "ControlNets",
    "lora_model_ids": "LoRA adapters; --adapter merges one into a transformers model",
    "lora_weight_names": "files of LoRA adapters",
    "lora_adapter_names": "names of LoRA adapters",
    "lora_scales": "scales of LoRA adapters",
    "ip_adapter_id": "IP adapters",
    "ip_adapter_subfolder": "folders of IP adapters",
    "ip_adapter_weight_name": "files of IP adapters",
    "ip_adapter_scale": "scales of IP adapters",
}
_OF_ONE_VALUE = ("num_images_per_prompt", "unet")


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of Optimum Neuron without a meaning here")
    for name, meaning in _NUMBERS.items():
        group.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
    for name, meaning in _SWITCHES.items():
        group.add_argument(f"--{name}", action="store_true", help=meaning)
    diffusion = parser.add_argument_group("options of diffusion pipelines, which are not compiled yet")
    for name, meaning in _DIFFUSION.items():
        num_values = None if name in _OF_ONE_VALUE else "*"
        diffusion.add_argument(f"--{name}", nargs=num_values, metavar="VALUE", help=meaning)
