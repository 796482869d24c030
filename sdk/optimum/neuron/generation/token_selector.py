"""`optimum.neuron.generation.token_selector`: choice of the next tokens, apart from the model that computes logits."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from optimum.neuron._log import logger
from optimum.neuron.generation.logits_process import FusedLogitsWarper
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedTokenizerBase, StoppingCriteriaList
from transformers.generation import (
    GenerationMode,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from optimum_neuron.errors import ConfigError

_FUSED = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
_MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_RESULTS = ("output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate")


class TokenSelector:
    """Chooses next tokens with the processors and criteria that transformers makes of a generation configuration.

    `create` makes one. Whoever computes logits calls `select`, and stops when `stopping_criteria` say so.

    Args:
        mode: greedy search or sampling.
        logits_processor: changes logits before a choice.
        stopping_criteria: say when sequences are over.
        eos_token_ids: tokens that end a sequence.
        pad_token_id: token behind its end.
        logits_warper: keeps the likeliest tokens, for sampling.
        seed: of the sampling.
    """

    def __init__(
        self,
        mode: GenerationMode,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        eos_token_ids: list[int],
        pad_token_id: int,
        logits_warper: FusedLogitsWarper | None = None,
        seed: int | None = 0,
    ) -> None:
        self.mode = mode
        self.logits_processor = logits_processor
        self.stopping_criteria = stopping_criteria
        self.eos_token_ids = eos_token_ids
        self.pad_token_id = pad_token_id
        self.logits_warper = logits_warper
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)

    @classmethod
    def create(
        cls,
        input_ids: torch.Tensor,
        generation_config: GenerationConfig,
        model: Any,
        max_seq_length: int,
        stopping_criteria: StoppingCriteriaList | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        seed: int | None = 0,
    ) -> Self:
        """Make the selector of a generation configuration.

        Args:
            input_ids: the prompts [batch, tokens].
            generation_config: its settings; the object is not changed.
            model: has transformers' `GenerationMixin`.
            max_seq_length: most tokens of a prompt and its answer together.
            stopping_criteria: more criteria than those of the configuration.
            tokenizer: reads `stop_strings`.
            seed: of the sampling; None: another one each time.

        Raises:
            ConfigError: the configuration is for another kind of generation, asks for more than tokens, has no end
                token, or a `min_length` that the model does not reach.
        """
        generation_config.validate()
        config, _ = model._prepare_generation_config(copy.deepcopy(generation_config))
        num_prompt = input_ids.shape[-1]
        model._prepare_special_tokens(config, True, device=input_ids.device)
        _require_tokens_only(config)
        _set_lengths(config, num_prompt, max_seq_length)
        end = config.eos_token_id
        if end is None:
            message = "The generation configuration has no eos_token_id."
            raise ConfigError(message, hint="Set the token that ends a sequence.", option="eos_token_id")
        ends = list(end) if isinstance(end, (list, tuple)) else [end]
        if config.pad_token_id is None:
            logger.warning("pad_token_id is the first token that ends a sequence, %d.", ends[0])
            config.pad_token_id = ends[0]
        processors = model._get_logits_processor(
            config,
            input_ids_seq_length=num_prompt,
            encoder_input_ids=input_ids,
            prefix_allowed_tokens_fn=None,
            logits_processor=LogitsProcessorList(),
            device=input_ids.device,
            model_kwargs={},
        )
        criteria = model._get_stopping_criteria(
            config, stopping_criteria or StoppingCriteriaList(), tokenizer=tokenizer
        )
        mode, warper = config.get_generation_mode(), None
        if mode == GenerationMode.SAMPLE:
            processors = LogitsProcessorList(one for one in processors if not isinstance(one, _FUSED))
            warper = FusedLogitsWarper.from_config(config)
        return cls(mode, processors, criteria, ends, config.pad_token_id, warper, seed)

    def select(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return the next token of each sequence [batch].

        Args:
            input_ids: tokens so far [batch, tokens].
            logits: logits of the next tokens [batch, vocabulary].
        """
        scores = self.logits_processor(input_ids, logits)
        if self.logits_warper is None:
            return scores.argmax(dim=-1)
        kept, tokens = self.logits_warper(scores)
        chosen = torch.multinomial(kept.softmax(dim=-1), num_samples=1, generator=self.generator)
        return (chosen if tokens is None else tokens.gather(1, chosen)).squeeze(1)


def _require_tokens_only(config: GenerationConfig) -> None:
    wanted = [name for name in _RESULTS if getattr(config, name, False)]
    if wanted:
        message = f"{', '.join(wanted)} asks for more than tokens."
        raise ConfigError(message, hint="Remove it from the generation configuration.", options=wanted)
    mode = config.get_generation_mode()
    if mode not in _MODES:
        message = f"The generation configuration is for {mode.value}."
        raise ConfigError(message, hint="Use greedy search or sampling of one sequence.", mode=mode.value)


def _set_lengths(config: GenerationConfig, num_prompt: int, limit: int) -> None:
    """Set `max_length` to what the configuration asks for, cut to what the model holds."""
    least = config.min_length or 0
    if least > limit:
        message = f"min_length={least} is more than the {limit} tokens of the model's longest sequence."
        raise ConfigError(message, hint=f"Pass {limit} or less.", option="min_length", value=least, limit=limit)
    length = config.max_length
    if config.max_new_tokens is not None:
        length = num_prompt + config.max_new_tokens
    if length is not None and length > limit:
        logger.warning("max_length is %d instead of %d: the model's longest sequence.", limit, length)
    config.max_length = limit if length is None else min(length, limit)
