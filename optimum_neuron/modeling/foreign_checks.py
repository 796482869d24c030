"""Checks of what scripts of other libraries ask for against the configuration of a checkpoint, before a compile."""

from __future__ import annotations

from transformers import PretrainedConfig

from ..base.model_facts import facts_of
from ..errors import ConfigError
from ..sources import method_of, published_scheme, quantization_of


def require_heads(config: PretrainedConfig, degree: object, *, option: str) -> None:
    """Check that every core has an attention head.

    Args:
        config: configuration of the model.
        degree: cores that share a layer.
        option: the user's name for it.
    """
    num_heads = facts_of(config.get_text_config(decoder=True)).num_attention_heads
    if isinstance(degree, int) and num_heads is not None and degree > num_heads:
        raise ConfigError(
            f"{option}={degree} is more than the {num_heads} attention heads of this {config.model_type} model: "
            "some cores would have none.",
            hint=f"Pass at most {num_heads}.",
            option=option,
            value=degree,
            num_heads=num_heads,
        )


def require_quantization(config: PretrainedConfig, scheme: str | None, *, option: str) -> None:
    """Check that a checkpoint with quantized weights is compiled with its own kind of numbers.

    Args:
        config: configuration of the model.
        scheme: the scheme that was asked for; None: that of the checkpoint.
        option: the user's name for it.
    """
    settings = quantization_of(config)
    published = None if settings is None else published_scheme(settings).value
    if scheme is None or published is None or published.split("-")[0] == scheme.split("-")[0]:
        return
    assert settings is not None
    raise ConfigError(
        f"{option} asks for {scheme}, but the weights of the checkpoint are in {method_of(settings)}: {published}.",
        hint=f"Remove {option}: the checkpoint is compiled with its own numbers.",
        option=option,
        scheme=scheme,
        published=published,
    )
