"""Methods of stock pipelines that a compiled one refuses by name, with the reason and what to do.

It knows names of diffusers' methods, and no pipelines: `@refuse_methods` puts them on a class.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...errors import ConfigError
from ...kinds.diffusion import remedy

Class = TypeVar("Class", bound=type)

REFUSED = {
    **dict.fromkeys(
        (
            *("enable_freeu", "disable_freeu", "fuse_qkv_projections", "unfuse_qkv_projections"),
            *("enable_attention_slicing", "disable_attention_slicing", "set_attention_slice"),
            *("enable_vae_tiling", "disable_vae_tiling", "enable_vae_slicing", "disable_vae_slicing"),
            *("enable_xformers_memory_efficient_attention", "disable_xformers_memory_efficient_attention"),
            "set_use_memory_efficient_attention_xformers",
        ),
        "it would change the compiled code",
    ),
    "load_ip_adapter": "image adapters add layers; pass ip_adapter_id to the export",
    "unload_ip_adapter": "image adapters are layers of the compiled code",
    **dict.fromkeys(
        ("load_textual_inversion", "unload_textual_inversion"),
        "it changes the tokens; load it into the stock pipeline, save that, and export it",
    ),
    **dict.fromkeys(
        (
            *("unfuse_lora", "disable_lora", "enable_lora", "delete_adapters"),
            *("enable_lora_hotswap", "set_lora_device"),
        ),
        "adapters are in the weights: use set_adapters and unload_lora_weights",
    ),
    **dict.fromkeys(
        ("load_lora_into_unet", "load_lora_into_transformer", "load_lora_into_text_encoder"),
        "its models have no weights; use load_lora_weights",
    ),
    "from_single_file": "save the stock pipeline with save_pretrained, and pass its folder to from_pretrained",
    **dict.fromkeys(
        ("enable_model_cpu_offload", "enable_sequential_cpu_offload", "enable_group_offload"),
        "programs stay on their cores",
    ),
}
"""Methods, and why they are refused."""


def refuse_methods(kind: Class) -> Class:
    """Put the refusals on a class of compiled pipelines, over the methods of diffusers."""
    for name, reason in REFUSED.items():
        setattr(kind, name, _Refusal(name, reason))
    return kind


class _Refusal:
    """A method, of a class or its instances, that raises `ConfigError`."""

    def __init__(self, name: str, reason: str) -> None:
        self.__name__, self.__doc__, self._reason = name, f"Refused: {reason}.", reason

    def __get__(self, instance: object, owner: type) -> _Refusal:
        return self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Refuse the call."""
        message = f"{self.__name__} is not supported by a compiled pipeline: {self._reason}."
        raise ConfigError(message, hint=remedy(self.__name__), option=self.__name__)
