"""What every compiled model that generates tells transformers' generation, and where its settings come from.

It knows nothing of graphs: `causal_lm.py` and `seq2seq.py` run them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from transformers import GenerationConfig, GenerationMixin

from ..errors import ConfigError, ModelError, refusal
from ..plain_json import read_object
from .checks import on_host


class CompiledGenerationMixin(GenerationMixin):
    """`generate` over a compiled program: its cache is compiled in, and nothing can be switched."""

    _is_stateful = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`.

        Raises:
            ConfigError: embeddings were passed in place of token ids.
            ShapeError: an input is neither on the CPU nor on the device "neuron".
        """
        refuse_embeddings(kwargs)
        return super().__call__(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """transformers' `generate`, with all of its arguments.

        Inputs on the device "neuron" are brought to the CPU, where the results are.

        Raises:
            ConfigError: something was asked for that a compiled program cannot do.
            ShapeError: a prompt does not fit, or is neither on the CPU nor on the device "neuron".
        """
        refuse_embeddings(kwargs)
        args, kwargs = on_host(args, kwargs)
        return super().generate(*args, **kwargs)

    def generate_batch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Continuous batching, which this version does not have.

        Raises:
            ConfigError: always.
        """
        raise _no_continuous_batching("generate_batch()")

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Continuous batching, which this version does not have.

        Raises:
            ConfigError: always.
        """
        raise _no_continuous_batching("init_continuous_batching()")

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


def _no_continuous_batching(asked: str) -> ConfigError:
    return ConfigError(
        refusal(
            asked=asked,
            found="this version has no continuous batching",
            why="compiled graphs take the rows of one call, and no scheduler adds requests to them",
            do="call generate() with all prompts in one padded batch; more rows than compiled are split",
        )
    )


def refuse_embeddings(inputs: dict[str, Any]) -> None:
    """Refuse embeddings in place of token ids, and take out arguments for them that are None.

    Raises:
        ConfigError: there are some.
    """
    for name in ("inputs_embeds", "decoder_inputs_embeds"):
        if inputs.get(name) is not None:
            ids = name.replace("inputs_embeds", "input_ids")
            raise ConfigError(
                refusal(
                    asked=name,
                    found="a compiled graph that begins at token ids",
                    why="the embedding is a part of the program",
                    do=f"pass {ids}, or run the original transformers model",
                ),
                details={"argument": name},
            )
        inputs.pop(name, None)


def refuse_settings(generation_config: GenerationConfig) -> None:
    """Refuse settings of generation that would change what was compiled.

    Raises:
        ConfigError: a kind of cache was asked for by name, or drafts of the model's first layers.
    """
    if generation_config.assistant_early_exit is not None:
        raise ConfigError(
            refusal(
                asked=f"assistant_early_exit={generation_config.assistant_early_exit}",
                found="a program that runs all layers of the model",
                why="its graphs cannot end after some of them",
                do="pass a smaller model as assistant_model, or prompt_lookup_num_tokens",
            )
        )
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
        _check_ids(saved)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"transformers cannot use {path} ({type(error).__name__}: {error}). Copy the file again from the "
            "checkpoint, or remove it to use the settings of config.json.",
            details={"file": str(path)},
        ) from error
    saved.cache_implementation = None  # a wish of the checkpoint, which the compiled cache takes the place of
    return saved


def _check_ids(settings: GenerationConfig) -> None:
    """Raise ValueError where special tokens are something else than token ids."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        value = getattr(settings, name, None)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(token) is int and abs(token) < 2**63 for token in ids):
            raise ValueError(f"{name} is {value!r} and no token id")
