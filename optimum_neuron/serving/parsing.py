"""What a chat model writes, taken apart: reasoning, content, and tool calls.

transformers' `ResponseParser` does it, by a template that says which marks a model uses. `choose_template` finds the
template: the tokenizer's, transformers' one for the architecture, or the marks in the chat template.

    parser = AnswerParser(template, prompt_text, tools)
    parser.feed("<think>Hm</think>Hi")   # [Part(kind="reasoning", text="Hm"), Part(kind="content", text="Hi")]
"""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from collections.abc import Callable
from typing import Any, Literal

from ..base.core import Choice
from ..base.foreign import tokenizer_facts
from ..base.transformers_types import PreTrainedConfig, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

Kind = Literal["content", "reasoning", "tool_call"]
_KINDS: dict[str, Kind] = {"content": "content", "reasoning_content": "reasoning", "thinking": "reasoning"}

_REASONING = {"open": "<think>", "close": "</think>", "content": "text"}
_PROMPT = r"\A(?s:.*)(?=<think>\s*\Z)|\A(?s:.*)\Z"
"""The prompt, except reasoning that it begins."""
_TOOL_CALLS = {
    "open_pattern": r"\s*<tool_call>",
    "close": "</tool_call>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": "{content}"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of an answer."""

    kind: Kind
    text: str = ""
    """Its text; the arguments of a tool call, as JSON."""
    name: str = ""
    """Name of a called function."""
    call_id: str = dataclasses.field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")
    """Name of a call; unused for text."""


def choose_template(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> Choice[dict[str, Any] | None]:
    """Return the template by which answers of a model are parsed, or None, and why."""
    from transformers.cli.serving.utils import get_response_template

    class Model:
        """The part of a model that transformers' function reads."""

    Model.config = config  # type: ignore[attr-defined]
    if (template := get_response_template(tokenizer, Model)) is not None:
        has_one = tokenizer_facts(tokenizer).response_template is not None
        owner = "the tokenizer has one" if has_one else f"transformers has one for {config.model_type}"
        return Choice(value=template, reason=owner)
    chat = tokenizer_facts(tokenizer).chat_template
    text = chat if isinstance(chat, str) else json.dumps(chat)
    fields: dict[str, Any] = {"reasoning_content": _REASONING} if "<think>" in text else {}
    fields |= {"tool_calls": _TOOL_CALLS} if "<tool_call>" in text else {}
    if not fields:
        return Choice(value=None, reason="the chat template has no marks of reasoning or tool calls")
    specials = [token for token in tokenizer_facts(tokenizer).all_special_tokens or () if token.startswith("<")]
    content: dict[str, Any] = {"content": "text"} | ({"close": specials} if specials else {})
    template = {"start_anchor_pattern": _PROMPT, "fields": {**fields, "content": content}}
    return Choice(value=template, reason=f"the chat template has marks of {' and '.join(fields)}")


class AnswerParser:
    """Takes one answer apart while it comes."""

    def __init__(self, template: dict[str, Any], prompt: str, tools: list[dict[str, Any]] | None) -> None:
        from transformers.utils.chat_parsing import ResponseParser

        self._parser = ResponseParser(template, prefix=prompt, tools=tools or None)
        self._rest = ""
        """Text that is in no piece yet."""
        self._has_failed = False

    def feed(self, text: str) -> list[Part]:
        """Return the pieces that this text completes."""
        self._rest += text
        return self._read(lambda: self._parser.feed(text))

    def flush(self) -> list[Part]:
        """Return the pieces that were held back."""
        return self._read(lambda: self._parser.finalize()[1])

    def _read(self, step: Callable[[], list[dict[str, Any]]]) -> list[Part]:
        parts: list[Part] = []
        if not self._has_failed:
            try:
                parts += (part for event in step() if (part := self._part(event)) is not None)
                return parts
            except Exception as error:  # noqa: BLE001  # a model may write anything, calls that are no JSON too
                logger.info("The rest of an answer is content: it cannot be parsed (%s).", error)
                self._has_failed = True
        text, self._rest = self._rest, ""
        return [*parts, Part(kind="content", text=text)] if text else parts

    def _part(self, event: dict[str, Any]) -> Part | None:
        field = event.get("field", "")
        if event["type"] == "region_chunk" and field in _KINDS and not event.get("dirty"):
            self._rest = self._rest.partition(event["text"])[2]
            return Part(kind=_KINDS[field], text=event["text"]) if event["text"] else None
        if event["type"] == "region_close" and field == "tool_calls":
            function = event["value"]["function"]
            name, arguments = str(function["name"]), function.get("arguments", {})
            self._rest = ""
            return Part(
                kind="tool_call", name=name, text=arguments if isinstance(arguments, str) else json.dumps(arguments)
            )
        return None
