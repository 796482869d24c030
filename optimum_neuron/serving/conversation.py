"""From the messages of a chat to tokens, by the model's chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..base.foreign import tokenizer_facts
from ..errors import RequestError
from .generator import Generator
from .protocol import ChatRequest, Message, TokenizeRequest, check_nested

_RESERVED = {
    *("conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"),
    *("tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
    *("return_assistant_tokens_mask", "messages", "sanitize_control_tokens"),
}
"""Keywords that are the server's, not the template's."""


def plain_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Return messages as chat templates take them: texts instead of parts, arguments of calls as mappings."""
    result = []
    for message in messages:
        plain = message.model_dump(exclude_none=True, exclude={"annotations", "audio", "function_call"})
        if isinstance(message.content, list):
            plain["content"] = "".join(part.text for part in message.content)
        plain.setdefault("content", "")
        if reasoning := plain.pop("reasoning", None):
            plain.setdefault("reasoning_content", reasoning)
        for called in plain.get("tool_calls", ()):
            arguments = called["function"]["arguments"]
            if isinstance(arguments, str):
                try:
                    called["function"]["arguments"] = check_nested(json.loads(arguments or "{}"))
                except (ValueError, RecursionError) as error:
                    text = f"The arguments of an earlier tool call are no JSON that can be read: {arguments[:100]!r}."
                    raise RequestError(text, status=400, param="messages") from error
        result.append(plain)
    return result


def template_ids(
    generator: Generator, body: ChatRequest | TokenizeRequest, tools: list[dict[str, Any]] | None
) -> list[int]:
    """Return the tokens of a chat, by the model's template."""
    if not tokenizer_facts(generator.tokenizer).chat_template:
        message = "The model has no chat template."
        raise RequestError(message, hint="Use /v1/completions.", status=400, param="messages")
    options = dict(body.chat_template_kwargs or {})
    effort, documents = (body.reasoning_effort, body.documents) if isinstance(body, ChatRequest) else (None, None)
    if effort is not None:
        options.setdefault("reasoning_effort", effort)
        options.setdefault("enable_thinking", effort != "none")
    if reserved := sorted(_RESERVED & set(options)):
        message = f"chat_template_kwargs may not have {', '.join(reserved)}."
        raise RequestError(message, status=400, param="chat_template_kwargs")
    messages = plain_messages(body.messages or [])
    texts = "\0".join(_texts((messages, tools, documents, options)))
    generator.check_length(len(texts), "messages")
    # Special tokens of users stay text, and those of the template are special.
    specials = generator.tokenizer.all_special_tokens
    is_marked = any(token in texts for token in specials)
    if is_marked and body.add_special_tokens:
        message = "The messages have the text of special tokens, so add_special_tokens is not supported."
        raise RequestError(message, hint="Remove add_special_tokens.", status=400, param="add_special_tokens")
    if is_marked and any(token in key for key in _keys((messages, tools, documents, options)) for token in specials):
        raise RequestError("A key has the text of a special token.", hint="Rename it.", status=400, param="messages")
    options |= {
        "tools": tools,
        "documents": documents,
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": body.continue_final_message,
    }
    marking = {"sanitize_control_tokens": True} if is_marked else {}
    try:
        if generator.templates is None:  # code of the tokenizer's class, which the user has allowed
            how = {"tokenize": is_marked, "return_dict": False}
            text = generator.tokenizer.apply_chat_template(messages, **how, **marking, **options)
            if is_marked:
                return list(text)
        else:
            text = generator.templates.render(messages, **marking, **options)
        generator.check_length(len(text), "messages")
        adds = body.add_special_tokens or False
        return list(generator.tokenizer(text, add_special_tokens=adds, **marking)["input_ids"])
    except RequestError:
        raise
    except Exception as error:  # a template raises what it likes, and may write half a character
        message = f"The chat template rejects the messages: {' '.join(str(error).split())[:500]}"
        raise RequestError(message, status=400, param="messages") from error


def _texts(value: object) -> Iterator[str]:
    """Every text in plain data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def _keys(value: object) -> Iterator[str]:
    """Every key in plain data."""
    if isinstance(value, dict):
        yield from map(str, value)
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from _keys(one)


def plain_tools(body: ChatRequest) -> list[dict[str, Any]] | None:
    """Return the tools that the model sees."""
    if not body.tools or body.tool_choice == "none":
        return None
    return [tool.model_dump(exclude_none=True) for tool in body.tools]
