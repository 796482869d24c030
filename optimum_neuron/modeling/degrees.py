"""Checks of degrees that a script names in another library's words, before a compile."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from ..errors import ConfigError


def require_heads(config: PretrainedConfig, degree: Any, *, option: str) -> None:
    """Check that every core has an attention head.

    Args:
        config: configuration of the model.
        degree: cores that share a layer.
        option: the user's name for it.
    """
    num_heads = getattr(config.get_text_config(decoder=True), "num_attention_heads", None)
    if isinstance(degree, int) and num_heads is not None and degree > num_heads:
        raise ConfigError(
            f"{option}={degree} is more than the {num_heads} attention heads of this {config.model_type} model: "
            "some cores would have none.",
            hint=f"Pass at most {num_heads}.",
            option=option,
            value=degree,
            num_heads=num_heads,
        )
