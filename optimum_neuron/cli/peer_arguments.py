"""Options of Optimum Neuron's `export neuron` that decide nothing here, and what is added to diffusion pipelines.

They are passed on unchanged: `exporters/peer_options.py` defines the effect of each.
"""

from __future__ import annotations

import argparse

from ..sources.pipelines import ADDITION_SYNONYMS
from .arguments import positive_int

_NUMBERS = {
    "patch_size": "changes nothing: the checkpoint has the patch size",
    "vae_scale_factor": "changes nothing: the configuration of the autoencoder has it",
}
_SWITCHES = {
    "disable-fast-relayout": "changes nothing: layouts are chosen by the real compiler only",
    "disable-fallback": "changes nothing: no operator runs on the host unless --allow_host_ops names it",
}
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
    group = parser.add_argument_group("options of Optimum Neuron without a meaning here")
    for name, meaning in _NUMBERS.items():
        group.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
    for name, meaning in _SWITCHES.items():
        group.add_argument(f"--{name}", action="store_true", help=meaning)
    additions = parser.add_argument_group("what is added to a diffusion pipeline")
    for name, meaning in _ADDITIONS.items():
        num_values, kind = None if name in _OF_ONE_VALUE else "+", float if name in _OF_NUMBERS else str
        flags = [f"--{name}", *(f"--{other}" for other, ours in ADDITION_SYNONYMS.items() if ours == name)]
        additions.add_argument(*flags, dest=name, nargs=num_values, type=kind, metavar="VALUE", help=meaning)
