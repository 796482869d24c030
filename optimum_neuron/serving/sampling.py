"""From a body of OpenAI's protocol to a prompt for the generator: settings, processors, and limits.

Parameters that a body leaves out have the values of the model's `generation_config.json`, and OpenAI's defaults if it
has none, as in vLLM. It does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import (
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import RequestError
from .generator import Generator, MakeProcessors, Prompt
from .logits import AllowedTokens, CountPenalty, LogitBias
from .protocol import Generation

if TYPE_CHECKING:
    from transformers import GenerationConfig


def make_prompt(
    generator: Generator,
    body: Generation,
    ids: Sequence[int],
    *,
    request_id: str,
    max_tokens: int | None,
    num_logprobs: int | None,
    grammar: str | None,
    timeout_s: float | None,
    adapter: str | None,
    num_answers: int,
    skip_special_tokens: bool = True,
) -> Prompt:
    """Return the prompt of a request, after checks that need the model."""
    ids = _truncated(ids, body, generator.max_length)
    num_new = _num_new(len(ids), max_tokens, generator.max_length)
    if max_tokens is None and (own := generator.model.generation_config.max_new_tokens) is not None:
        num_new = min(num_new, own)
    end_ids = () if body.ignore_eos else tuple(_end_ids(generator))
    stop_ids = tuple(body.stop_token_ids or ())
    _check_tokens("stop_token_ids", stop_ids, generator.num_tokens)
    return Prompt(
        ids=ids,
        max_new_tokens=num_new,
        request_id=request_id,
        settings=_settings(generator.model.generation_config, body),
        make_processors=_processors(generator, body, ids, grammar, [*end_ids, *stop_ids]),
        end_ids=end_ids,
        stop_ids=stop_ids,
        stop=tuple(body.stops),
        include_stop=body.include_stop_str_in_output,
        min_tokens=body.min_tokens,
        skip_special_tokens=skip_special_tokens and body.skip_special_tokens,
        num_logprobs=num_logprobs,
        seed=body.seed,
        num_answers=num_answers,
        adapter=adapter,
        streaming=body.stream,
        timeout_s=timeout_s,
        priority=body.priority,
    )


def _end_ids(generator: Generator) -> list[int]:
    """Tokens that end an answer, by the model and its tokenizer."""
    ends = generator.model.generation_config.eos_token_id
    listed = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    own = generator.tokenizer.eos_token_id
    return list(dict.fromkeys([*listed, *([] if own is None else [own])]))


def _truncated(ids: Sequence[int], body: Generation, max_length: int) -> list[int]:
    """The end of a prompt, if the body wants it."""
    limit = body.truncate_prompt_tokens
    if limit is None or limit == 0:
        return list(ids)
    return list(ids[-(max_length - 1 if limit == -1 else limit) :])


def _num_new(num_prompt: int, max_tokens: int | None, limit: int) -> int:
    if not num_prompt:
        raise RequestError("The prompt is empty.", hint="Send at least one token.", status=400, param="prompt")
    room = limit - num_prompt
    if room < (max_tokens or 1):
        wanted = "" if max_tokens is None else f" and the answer {max_tokens}"
        message = f"The prompt has {num_prompt} tokens{wanted}, but the model holds {limit} together."
        hint = "Shorten the prompt, or send a smaller max_tokens."
        raise RequestError(message, hint=hint, status=400, code="context_length_exceeded", param="max_tokens")
    return room if max_tokens is None else max(max_tokens, 1)


def sampling_defaults(generation_config: GenerationConfig) -> dict[str, float]:
    """Return what sampling parameters are if a request leaves them out: the model's values, else OpenAI's."""
    defaults = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    return {name: _first(getattr(generation_config, name), value) for name, value in defaults.items()}


def _settings(defaults: Any, body: Generation) -> dict[str, Any]:
    """Fields of transformers' `GenerationConfig`, for all of which the request has a value."""
    own = sampling_defaults(defaults)
    temperature = _first(body.temperature, own["temperature"])
    common = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    if temperature == 0:
        return {"do_sample": False, **common}
    top_k = _first(body.top_k, own["top_k"])
    min_p = _first(body.min_p, defaults.min_p, 0.0)
    settings = {
        "do_sample": True,
        "temperature": temperature,
        "top_k": max(top_k, 0),
        "top_p": _first(body.top_p, own["top_p"]),
        **common,
    }
    return settings | ({"min_p": min_p} if min_p else {})


def _first(*values: object) -> Any:
    return next(value for value in values if value is not None)


def _processors(
    generator: Generator, body: Generation, ids: list[int], grammar: str | None, end_ids: list[int]
) -> MakeProcessors:
    """Return the function that makes the processors of one answer, in vLLM's order."""
    bias = _bias(body, generator.num_tokens)
    _check_tokens("allowed_token_ids", body.allowed_token_ids or (), generator.num_tokens)
    bad_words = _bad_words(body, generator.tokenizer)
    own = sampling_defaults(generator.model.generation_config)
    repetition = _first(body.repetition_penalty, own["repetition_penalty"])
    # Compiled here, so that a wrong one is an error of the request.
    guide = None if grammar is None else generator.grammars.guide(grammar, num_prompt=len(ids), end_ids=end_ids)

    def make() -> list[LogitsProcessor]:
        made: list[LogitsProcessor] = []
        if body.allowed_token_ids:
            made.append(AllowedTokens(body.allowed_token_ids))
        if bad_words:
            made.append(NoBadWordsLogitsProcessor(bad_words))
        if bias:
            made.append(LogitBias(bias))
        if body.min_tokens and end_ids:
            made.append(MinNewTokensLengthLogitsProcessor(len(ids), body.min_tokens, end_ids, device="cpu"))
        if repetition != 1:
            made.append(RepetitionPenaltyLogitsProcessor(repetition))
        if body.presence_penalty or body.frequency_penalty:
            penalties = {"presence": body.presence_penalty, "frequency": body.frequency_penalty}
            made.append(CountPenalty(len(ids), **penalties))
        if guide is not None:
            made.append(guide.copy())
        return made

    return make


def _bias(body: Generation, num_tokens: int) -> dict[int, float]:
    if not body.logit_bias:
        return {}
    if wrong := [key for key in body.logit_bias if not (key.isascii() and key.isdigit())]:
        message = f"logit_bias has the key {wrong[0]!r}, which is no token id."
        raise RequestError(message, status=400, param="logit_bias")
    bias = {int(key): value for key, value in body.logit_bias.items()}
    _check_tokens("logit_bias", list(bias), num_tokens)
    return bias


def _bad_words(body: Generation, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Tokens of each word, at the begin of a text and after a space."""
    spellings = [spelling for word in body.bad_words or () for spelling in (word, f" {word}")]
    return [tokenizer.encode(spelling, add_special_tokens=False) for spelling in spellings]


def _check_tokens(field: str, ids: Sequence[int], num_tokens: int) -> None:
    if wrong := [token for token in ids if token >= num_tokens]:
        message = f"{field} has {wrong[0]}, but the vocabulary has {num_tokens} tokens."
        raise RequestError(message, hint="Send token ids of the model.", status=400, param=field)
