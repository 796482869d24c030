"""Prompts as vLLM takes them: a text, tokens, or a mapping with either."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from ..errors import ConfigError


class TextPrompt(TypedDict):
    """A prompt as a text."""

    prompt: str
    multi_modal_data: NotRequired[Any]
    mm_processor_kwargs: NotRequired[dict[str, Any]]
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt as tokens."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]
    token_type_ids: NotRequired[list[int]]
    multi_modal_data: NotRequired[Any]
    mm_processor_kwargs: NotRequired[dict[str, Any]]
    cache_salt: NotRequired[str]


class EmbedsPrompt(TypedDict):
    """A prompt as vectors, which is refused."""

    prompt_embeds: Any


PromptType = str | list[int] | TextPrompt | TokensPrompt
"""One prompt."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """A prompt that was read: a text, tokens, or both."""

    text: str | None
    ids: list[int] | None


_REFUSED = {
    "prompt_embeds": "Pass prompt_token_ids.",
    "multi_modal_data": "Use NeuronModelForImageTextToText for pictures.",
    "mm_processor_kwargs": "Use NeuronModelForImageTextToText for pictures.",
    "encoder_prompt": "Use NeuronModelForSeq2SeqLM for encoder-decoders.",
    "cache_salt": "Pass enable_prefix_caching=False to LLM.",
    "token_type_ids": "Pass the texts.",
}


def read_prompts(prompts: Any, prompt_token_ids: Any = None) -> list[Input]:
    """Return the prompts of a call, one or several.

    Args:
        prompts: a prompt, or a list of prompts.
        prompt_token_ids: their tokens, in calls of older scripts.
    """
    if prompt_token_ids is not None:
        rows = [prompt_token_ids] if _are_tokens(prompt_token_ids) else list(prompt_token_ids)
        texts = [prompts] if isinstance(prompts, str) else list(prompts or [None] * len(rows))
        if len(texts) != len(rows):
            raise ConfigError(
                f"There are {len(texts)} prompts, but prompt_token_ids for {len(rows)}.",
                hint="Pass as many of both, or prompt_token_ids alone.",
                num_prompts=len(texts),
                num_rows=len(rows),
            )
        return [_read({"prompt": text, "prompt_token_ids": row}) for text, row in zip(texts, rows, strict=True)]
    if isinstance(prompts, (str, Mapping)) or _are_tokens(prompts):
        return [_read(prompts)]
    if not isinstance(prompts, Sequence):
        raise ConfigError(
            f"A {type(prompts).__name__} is no prompt.",
            hint="Pass a text, a list of token IDs, a mapping with prompt or prompt_token_ids, or a list of these.",
            type=type(prompts).__name__,
        )
    return [_read(prompt) for prompt in prompts]


def _are_tokens(prompt: object) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and all(isinstance(token, int) for token in prompt)


def _read(prompt: Any) -> Input:
    if isinstance(prompt, str):
        return Input(text=prompt, ids=None)
    if _are_tokens(prompt):
        return Input(text=None, ids=list(prompt))
    if isinstance(prompt, Mapping):
        for name, hint in _REFUSED.items():
            if prompt.get(name) is not None:
                raise ConfigError(f"A prompt with {name} is not supported.", hint=hint, option=name)
        text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        if ids is not None and all(isinstance(token, int) for token in ids) and len(ids):
            return Input(text=text, ids=list(ids))
        if isinstance(text, str) and ids is None:
            return Input(text=text, ids=None)
    raise ConfigError(
        f"{str(prompt)[:80]!r} is no prompt.",
        hint="Pass a text, token IDs, or a mapping with prompt or prompt_token_ids that is not empty.",
        prompt=str(prompt)[:80],
    )
