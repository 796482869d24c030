"""The base of all generating models: their part of transformers' generation interface, and their saved settings.

It does not depend on graphs: `decoder.py` and `encoder_decoder.py` run them.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, StoppingCriteriaList

from ..base.core import Choice
from ..base.transformers_types import PreTrainedConfig
from ..engine import Steps
from ..errors import ConfigError, ModelError
from ..exporters import Prepared
from ..kinds import signature_of
from ..sources import GENERATION, read_typed, unreadable_errors
from ..upstream.cache_argument import CACHE
from .batching import ContinuousBatching
from .cache import NeuronCache
from .checks import on_host
from .loading import NeuronModel
from .token_loop import TRANSFORMERS, TokenLoop, choose_loop

if TYPE_CHECKING:
    from transformers.generation.streamers import BaseStreamer

    from ..kinds.encoder_decoder import NeuronSeq2SeqConfig, NeuronSpeechSeq2SeqConfig
    from ..options.configuration import NeuronConfig

logger = logging.getLogger(__name__)

_FIXED_SETTINGS = {
    "assistant_early_exit": (
        "the compiled graphs run all layers",
        "Pass a smaller model as assistant_model, or use prompt_lookup_num_tokens.",
    ),
    "cache_implementation": ("the KV cache is compiled into the model", "Remove the argument."),
}
"""Setting of generation that must stay None, to the reason and the hint of the error."""


class NeuronGenerativeModel(ContinuousBatching, GenerationMixin, NeuronModel):
    """A compiled model with `generate`, whose KV cache is part of the program."""

    neuron_config: NeuronConfig | NeuronSeq2SeqConfig | NeuronSpeechSeq2SeqConfig

    output_modalities = ("text",)
    base_model_prefix = "model"
    _is_stateful = False
    last_loop: Choice[str] | None = None
    """Loop that added the tokens of the last greedy, sampled, or assisted `generate`, with the reason."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._signature = signature_of(
            self.loaded.program, prepared.metadata, task=prepared.config.task, model_config=prepared.source.config
        )
        self.generation_config = saved_generation_config(prepared.source.folder, self.config)

    @property
    def batch_size(self) -> int:
        """Sequences of the compiled graphs; each has `num_beams` rows in the decoder of an encoder-decoder."""
        return self.neuron_config.batch_size

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run `forward`."""
        refuse_embeddings(kwargs)
        return super().__call__(*args, **kwargs)

    def generate(self, *args: object, **kwargs: object) -> Any:
        """Run transformers' `generate`, with all of its arguments.

        Inputs on the device "neuron" are copied to the CPU, where the results are.
        """
        refuse_embeddings(kwargs)
        if isinstance(cache := kwargs.get(CACHE), NeuronCache):
            cache.sequences.renew()  # another turn: host code may have been compiled since the last one
        args, kwargs = on_host(args, kwargs)
        return super().generate(*args, **kwargs)

    def _sample(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: BaseStreamer | None = None,
        **model_kwargs: object,
    ) -> Any:
        """Add tokens one by one, greedily or by sampling: in the loop that `choose_loop` takes."""
        self.last_loop = choice = choose_loop(self, generation_config, model_kwargs, synced=synced_gpus)
        if choice.value == TRANSFORMERS:
            options = {"synced_gpus": synced_gpus, "streamer": streamer, **model_kwargs}
            return super()._sample(input_ids, logits_processor, stopping_criteria, generation_config, **options)
        is_first = not generation_config.is_assistant
        outputs = self._prefill(input_ids, generation_config, model_kwargs, is_first_iteration=is_first)
        cache = outputs[CACHE]
        loop = TokenLoop(generation_config, logits_processor, stopping_criteria, streamer)
        if (max_topk := self.neuron_config.max_topk) is not None:
            self.last_loop = dataclasses.replace(choice, reason=f"{choice.reason}; {loop.reading(max_topk)}")
        ids = loop.run(input_ids, outputs.logits[:, -1:], self._steps(cache, model_kwargs), cache)
        return loop.output(ids, cache, has_encoder=self.config.is_encoder_decoder)

    def _steps(self, cache: NeuronCache, model_kwargs: dict[str, Any]) -> Steps:
        """Return the decode steps after a prompt that is in the cache."""
        raise NotImplementedError

    def _has_holes(self, model_kwargs: dict[str, Any]) -> bool:
        """Return whether the mask of a prompt may make a difference to later tokens."""
        return False

    def can_generate(self) -> bool:
        """Return True."""
        return True

    def is_remote_code(self) -> bool:
        """Return False: the compiled program is plain data, whatever code it was captured from."""
        return False

    def get_experts_implementation(self) -> dict[str, str]:
        """Return no implementations to choose from: experts are compiled in."""
        return {}

    def _valid_auto_compile_criteria(self, *args: object, **kwargs: object) -> bool:
        return False

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: object, **kwargs: object
    ) -> None:
        refuse_settings(generation_config)
        self._limit_length(generation_config, model_kwargs.get("attention_mask"))
        if model_kwargs.get(CACHE) is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = NeuronCache(self.loaded, self._signature)

    def _get_candidate_generator(self, *args: object, **kwargs: object) -> Any:
        """Return transformers' generator of candidates; it proposes no more than caches can forget."""
        generator = super()._get_candidate_generator(*args, **kwargs)
        models = [one for one in (self, kwargs.get("assistant_model")) if isinstance(one, NeuronGenerativeModel)]
        limits = [one._signature.num_forgettable(one.loaded.program) for one in models]
        most = min((limit for limit in limits if limit is not None), default=None)
        limit_candidates(generator, most, "layers with a window forget no more")
        return generator

    def _limit_length(self, settings: GenerationConfig, attention_mask: torch.Tensor | None) -> None:
        """Limit `max_length` to the compiled length, with a warning."""
        raise NotImplementedError


def limit_candidates(generator: object, most: int | None, reason: str) -> None:
    """Let a generator of candidates propose at most so many tokens at once, with a message; None for any number.

    Tokens stay the same: fewer candidates take more calls.
    """
    if most is None:
        return
    for name in ("num_assistant_tokens", "num_output_tokens"):
        if getattr(generator, name, 0) > most:
            logger.info("%s=%d becomes %d: %s", name, getattr(generator, name), most, reason)
            setattr(generator, name, most)
    if hasattr(generator, "assistant_generation_config"):
        generator.assistant_generation_config.num_assistant_tokens_schedule = "constant"


def refuse_embeddings(inputs: dict[str, Any]) -> None:
    """Reject embeddings in place of token IDs, and remove arguments for them that are None."""
    for name in ("inputs_embeds", "decoder_inputs_embeds"):
        if inputs.pop(name, None) is not None:
            message = f"{name} is not supported: the embedding is compiled into the model."
            raise ConfigError(message, hint=f"Pass {name.replace('inputs_embeds', 'input_ids')}.", argument=name)


def refuse_settings(generation_config: GenerationConfig) -> None:
    """Reject settings of generation that are fixed at export."""
    for option, (reason, hint) in _FIXED_SETTINGS.items():
        value = getattr(generation_config, option)
        if value is not None:
            raise ConfigError(f"{option}={value!r} is not supported: {reason}.", hint=hint, option=option, value=value)


def known_inputs(inputs: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Remove arguments that `generate` needs only for itself, such as the tokenizer of stop strings."""
    return {name: value for name, value in inputs.items() if name in names}


def saved_generation_config(folder: Path, config: PreTrainedConfig) -> GenerationConfig:
    """Read the generation settings of a checkpoint, or derive them from its configuration."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return GenerationConfig.from_model_config(config)
    settings = read_typed(path, GENERATION)
    try:
        saved = GenerationConfig.from_dict(settings)
    except unreadable_errors() as error:
        message = f"transformers cannot use {path} ({type(error).__name__}: {error})."
        hint = "Copy the file again from the checkpoint, or remove it to use the settings of config.json."
        raise ModelError(message, hint=hint, file=str(path)) from error
    saved.cache_implementation = None  # the compiled cache replaces it
    return saved
