"""What every compiled model that generates tells transformers' generation, and where its settings come from.

It knows nothing of graphs: `causal_lm.py` and `seq2seq.py` run them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, GenerationMixin

from ..errors import ConfigError, ModelError, refusal
from ..plain_json import read_object


class CompiledGenerationMixin(GenerationMixin):
    """`generate` over a compiled program: its cache is compiled in, and nothing can be switched."""

    _is_stateful = False

    def can_generate(self) -> bool:
        """It can."""
        return True

    def is_remote_code(self) -> bool:
        """The compiled program is ours, whatever code it was captured from."""
        return False

    def get_experts_implementation(self) -> dict[str, str]:
        """Experts are compiled in; there is nothing to switch."""
        return {}

    def _valid_auto_compile_criteria(self, *args: Any, **kwargs: Any) -> bool:
        return False


def refuse_cache_implementation(generation_config: GenerationConfig) -> None:
    """Refuse a kind of cache that was asked for by name.

    Raises:
        ConfigError: one was.
    """
    if generation_config.cache_implementation is not None:
        raise ConfigError(
            refusal(
                asked=f"cache_implementation={generation_config.cache_implementation!r}",
                found="the cache is part of the compiled program",
                why="its kind is fixed at export",
                do="leave cache_implementation out",
            )
        )


def known_inputs(inputs: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Leave out what `generate` passes on for its own parts only, such as the tokenizer of stop strings."""
    return {name: value for name, value in inputs.items() if name in names}


def saved_generation_config(folder: Path, config: Any) -> GenerationConfig:
    """The settings that come with a checkpoint, or those that its configuration has.

    Raises:
        ModelError: the file of the settings is damaged.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        return GenerationConfig.from_model_config(config)
    settings = read_object(path)
    try:
        saved = GenerationConfig.from_dict(settings)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"transformers cannot use {path} ({type(error).__name__}: {error}). Copy the file again from the "
            "checkpoint, or remove it to use the settings of config.json.",
            details={"file": str(path)},
        ) from error
    saved.cache_implementation = None  # a wish of the checkpoint, which the compiled cache takes the place of
    return saved
