"""Prompts of chats, by a template of the tokenizer or of the script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.foreign import tokenizer_facts
from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import ConfigError, ModelError, invalid_choice
from .inputs import TokensPrompt

_FORMATS = ("auto", "string", "openai")


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    content_format: str,
    add_generation_prompt: bool,
    continue_final_message: bool,
    **options: Any,
) -> TokensPrompt:
    """Return the prompt of a conversation.

    Args:
        tokenizer: the tokenizer.
        messages: messages with role and content.
        content_format: "string" joins the parts of a message, "openai" keeps them.
        add_generation_prompt: whether it ends with the begin of an answer.
        continue_final_message: whether the answer goes on from the last message.
        **options: `chat_template`, `tools`, and variables of the template.
    """
    if content_format not in _FORMATS:
        raise invalid_choice("chat_template_content_format", content_format, _FORMATS)
    if add_generation_prompt and continue_final_message:
        raise ConfigError(
            "continue_final_message needs add_generation_prompt=False.",
            hint="Pass it too.",
            option="continue_final_message",
        )
    if not (options.get("chat_template") or tokenizer_facts(tokenizer).chat_template):
        raise ModelError("The tokenizer has no chat template.", hint="Pass chat_template.", option="chat_template")
    text = tokenizer.apply_chat_template(
        [_plain(message, joins=content_format != "openai") for message in messages],
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        **options,
    )
    # The template has written the special tokens already.
    ids = tokenizer.encode(text, add_special_tokens=False)
    return TokensPrompt(prompt_token_ids=ids, prompt=text)


def _plain(message: Mapping[str, Any], *, joins: bool) -> dict[str, Any]:
    """A message as templates take it: a text for its parts, and calls with mappings."""
    if not isinstance(message, Mapping) or "role" not in message:
        kind = type(message).__name__ if not isinstance(message, Mapping) else "mapping without role"
        raise ConfigError(
            f"A message is a {kind}.",
            hint='Pass a list such as [{"role": "user", "content": "Hello"}].',
            option="messages",
            value=kind,
        )
    plain = dict(message)
    parts = plain.get("content")
    if isinstance(parts, (list, tuple)) and joins:
        if wrong := [part for part in parts if not isinstance(part, str) and part.get("type") != "text"]:
            raise ConfigError(
                f"A message has a part of type {wrong[0].get('type')!r}: this model reads text only.",
                hint="Use NeuronModelForImageTextToText for pictures.",
                type=wrong[0].get("type"),
            )
        plain["content"] = "\n".join(part if isinstance(part, str) else part["text"] for part in parts)
    calls = [dict(call) for call in plain.get("tool_calls") or ()]
    for call in calls:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            function["arguments"] = json.loads(function["arguments"] or "{}")
        call["function"] = function
    return plain | ({"tool_calls": calls} if calls else {})
