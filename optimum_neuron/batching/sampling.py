"""The next token of one request, by its own settings and from its own random stream.

Settings are transformers': its logits processors and stopping criteria work on the request's own row. A request that
samples has a generator of its own, so its tokens are those of `generate` after `torch.manual_seed(seed)`, whatever runs
beside it.

Shape legend: V vocabulary.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria

from ..engine import SequenceDraft
from ..errors import ConfigError, ShapeError, nearest
from .candidates import candidate_sampler

logger = logging.getLogger(__name__)

_MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_OF_CALLS = ("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "tokenizer", "assistant_model")
"""Keywords of `generate` that are no fields of its settings."""
_OTHER_DRAFTS = ("use_mtp", "speculation_type", "assistant_early_exit", "assistant_ensemble_weight")
"""Settings of drafts that read the model's layers, or change its scores."""
_OF_GENERATE = ("is_assistant", "token_healing")
"""Settings that only `generate` reads: of a model that drafts, and of a prompt whose end is written anew."""


@dataclasses.dataclass(kw_only=True)
class Sampler:
    """Chooses the tokens of one request, and says when it is answered."""

    prompt: Sequence[int]
    max_new_tokens: int
    end_ids: frozenset[int]
    """Tokens that end the answer."""
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    generator: torch.Generator | None
    """Its random stream; None: the likeliest token."""
    wants_logprobs: bool
    draft: SequenceDraft | None = None
    """Proposes tokens that a check of the model accepts or not; None: every token takes a step."""

    def __post_init__(self) -> None:
        self._num_tokens = len(self.prompt)
        self._ids = torch.zeros(1, len(self.prompt) + self.max_new_tokens, dtype=torch.long)
        self._ids[0, : len(self.prompt)] = torch.tensor(self.prompt)
        samples = self.generator is not None and not self.wants_logprobs
        self._candidates = candidate_sampler(self.processors) if samples else "it does not sample"

    @property
    def ids(self) -> torch.Tensor:
        """The prompt and the answer so far [1, tokens]."""
        return self._ids[:, : self._num_tokens]

    @property
    def is_plain(self) -> bool:
        """Whether its token is the largest logit."""
        return self.generator is None and not self.processors and not self.wants_logprobs

    def reading(self, num_candidates: int) -> str:
        """Return what is read of a step that returns so many of the largest logits, with the reason."""
        if self.is_plain:
            return "one token is read"
        sampler = self._candidates
        if self.wants_logprobs:
            reason = "logprobs are returned"
        elif self.generator is None:
            reason = f"{', '.join(type(one).__name__ for one in self.processors)} changes them"
        elif isinstance(sampler, str):
            reason = sampler
        elif sampler.top_k >= num_candidates:
            reason = f"top_k={sampler.top_k} is not below max_topk={num_candidates}"
        else:
            return f"{num_candidates} candidates are read"
        return f"all logits are read: {reason}"

    def choose(
        self, logits_V: torch.Tensor, on_device: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[int, float | None]:
        """Return the next token, and its logarithmic probability if it is wanted.

        Args:
            on_device: the largest of them [1, K] in descending order and their tokens, if the device found some.
        """
        if self.generator is not None and not isinstance(sampler := self._candidates, str):
            if on_device is not None and sampler.top_k < on_device[0].shape[1]:
                tokens = sampler.pick(*on_device, len(logits_V), self.generator)
            else:
                tokens = sampler.pick_from(logits_V[None].float().clone(), self.generator)
            if tokens is not None:
                return int(tokens), None
        scores = logits_V[None].float().clone()
        scores = self.processors(self.ids, scores)
        if self.generator is None:
            token = int(scores.argmax())
        else:
            token = int(torch.multinomial(scores.softmax(1), 1, generator=self.generator))
        logprob = float(scores.log_softmax(1)[0, token]) if self.wants_logprobs else None
        return token, logprob

    def ends_with(self, token: int, num_new: int) -> bool:
        """Return whether the answer, of so many tokens by now, is complete with this token."""
        self._ids[0, self._num_tokens] = token
        self._num_tokens += 1
        if token in self.end_ids or num_new >= self.max_new_tokens:
            return True
        return bool(self.criteria) and bool(self.criteria(self.ids, None).all())


def checked_prompt(model: Any, input_ids: Sequence[int]) -> list[int]:
    """Return the token ids of a prompt."""
    prompt = torch.as_tensor(input_ids).flatten().tolist()
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    wrong = [token for token in prompt if not isinstance(token, int) or not 0 <= token < vocabulary]
    if not prompt:
        raise ShapeError("The prompt has no tokens.", hint="Pass at least one.", ids=[])
    if wrong:
        message = f"The prompt has {wrong[0]!r}, which is no token of the vocabulary of {vocabulary}."
        raise ShapeError(message, hint="Pass token ids of the model's tokenizer.", ids=wrong)
    return prompt


def make_sampler(
    model: Any,
    prompt: Sequence[int],
    generation_config: GenerationConfig | None,
    options: Mapping[str, Any],
    *,
    num_slots: int,
    seed: int,
    wants_logprobs: bool,
) -> Sampler:
    """Return the sampler of a request.

    Args:
        model: a model with transformers' `GenerationMixin`.
        generation_config: settings; None for the model's.
        options: settings of this request, and keywords of `generate` such as `logits_processor` and `tokenizer`.
    """
    calls = {name: options[name] for name in _OF_CALLS if name in options}
    given = {name: value for name, value in options.items() if name not in _OF_CALLS and value is not None}
    config = _updated(copy.deepcopy(model.generation_config if generation_config is None else generation_config), given)
    limit = config.max_length  # of the user: defaults of transformers follow
    config, _ = model._prepare_generation_config(config)
    if config.eos_token_id == -1:
        config.eos_token_id = None  # transformers' word for an answer that no token ends
    _refuse_modes(config)
    _refuse_drafts(config)
    max_new_tokens = _num_new_tokens(config.max_new_tokens, limit, len(prompt), num_slots)
    config.max_new_tokens, config.max_length = max_new_tokens, len(prompt) + max_new_tokens
    if config.min_new_tokens is not None:
        config.min_length = None  # it counts alone, as in `generate`
    model._prepare_special_tokens(config, True, device="cpu")
    processors = model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=len(prompt),
        encoder_input_ids=torch.tensor([prompt], dtype=torch.long),
        prefix_allowed_tokens_fn=calls.get("prefix_allowed_tokens_fn"),
        logits_processor=LogitsProcessorList(calls.get("logits_processor") or []),
        device="cpu",
        model_kwargs={},
    )
    try:
        criteria = model._get_stopping_criteria(config, StoppingCriteriaList(), tokenizer=calls.get("tokenizer"))
    except ValueError as error:
        raise ConfigError(str(error), hint="Pass tokenizer with stop_strings.", option="stop_strings") from error
    own = [one for one in criteria if not isinstance(one, (EosTokenCriteria, MaxLengthCriteria))]
    ends = config._eos_token_tensor
    return Sampler(
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        end_ids=frozenset() if ends is None else frozenset(ends.tolist()),
        processors=processors,
        criteria=StoppingCriteriaList([*own, *(calls.get("stopping_criteria") or [])]),
        generator=torch.Generator().manual_seed(seed) if config.do_sample else None,
        wants_logprobs=wants_logprobs,
        draft=model.request_draft(prompt, config, calls.get("assistant_model")),
    )


def _updated(config: GenerationConfig, settings: Mapping[str, Any]) -> GenerationConfig:
    try:
        unknown = config.update(**settings)
    except ValueError as error:
        raise ConfigError(str(error), hint="Pass other settings.", settings=sorted(settings)) from error
    if unknown:
        raise _unknown(next(iter(unknown)))
    return config


def _num_new_tokens(max_new_tokens: int | None, max_length: int | None, num_prompt: int, num_slots: int) -> int:
    """Tokens of an answer, as many as the settings allow and the cache holds."""
    longest = num_slots if max_length is None or max_new_tokens is not None else min(max_length, num_slots)
    room = longest - num_prompt
    if room < 1:
        limit = f"a sequence has {num_slots}" if longest == num_slots else f"max_length is {longest}"
        message = f"The prompt has {num_prompt} tokens, but {limit}, its answer included."
        raise ShapeError(message, hint="Shorten the prompt.", size=num_prompt, limit=longest - 1)
    if max_new_tokens is not None and max_new_tokens > room:
        logger.warning("max_new_tokens=%d becomes %d: a sequence has %d slots", max_new_tokens, room, num_slots)
    return min(room if max_new_tokens is None else max_new_tokens, room)


def _refuse_modes(config: GenerationConfig) -> None:
    mode = config.get_generation_mode()
    if mode not in (*_MODES, GenerationMode.ASSISTED_GENERATION):
        message = f"Continuous batching takes greedy search and sampling, not {mode.value}."
        raise ConfigError(message, hint="Use generate(), which has all modes.", mode=mode.value)
    if config.cache_implementation not in (None, "paged"):
        message = f"cache_implementation={config.cache_implementation!r}: the cache is compiled into the model."
        raise ConfigError(message, hint="Remove it.", option="cache_implementation", value=config.cache_implementation)
    if config.guidance_scale is not None and config.guidance_scale != 1:
        message = f"guidance_scale={config.guidance_scale} needs a second sequence for every request."
        raise ConfigError(message, hint="Use generate().", option="guidance_scale", value=config.guidance_scale)
    for option in _OF_GENERATE:
        if value := getattr(config, option, None):
            message = f"{option}={value!r} is not supported in continuous batching."
            raise ConfigError(message, hint="Use generate().", option=option, value=value)
    if (decay := config.exponential_decay_length_penalty) is not None and config.eos_token_id is None:
        option = "exponential_decay_length_penalty"
        message = f"{option}={decay!r} needs eos_token_id, but no token ends the answer."
        raise ConfigError(message, hint="Pass eos_token_id, or remove it.", option=option, value=decay)


def _refuse_drafts(config: GenerationConfig) -> None:
    for option in _OTHER_DRAFTS:
        if value := getattr(config, option):
            message = f"{option}={value!r} is not supported in continuous batching."
            hint = "Pass prompt_lookup_num_tokens, or an assistant_model."
            raise ConfigError(message, hint=hint, option=option, value=value)


def _unknown(name: str) -> ConfigError:
    known = [*GenerationConfig().to_dict(), *_OF_CALLS, "seed"]
    message, close = f"{name} is no setting of generation.", nearest(name, known)
    return ConfigError(message, hint=f"Did you mean {close}?" if close else "Remove it.", option=name)
