"""`/v1/responses`: OpenAI's newer form of chats, whose answers are lists of items.

A body becomes that of a chat, so prompts, tools, and parsing are those of `chat.py`. `ResponseStore` keeps answers for
`previous_response_id`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from ..errors import NeuronError, RequestError
from .answers import Call, Event, chat_logprobs
from .chat import AnswerMessage, chat_prompt
from .generator import Generator, Piece, Prompt
from .problems import problem_of
from .protocol import ChatRequest, Generation, ResponsesRequest, parse
from .response_items import OutputItems, messages_of

_OF_CHAT = set(Generation.model_fields) - {"n", "response_format", "stream_options", "return_token_ids"}
"""Fields that a chat has too, with the same meaning."""


async def respond(
    generator: Generator, body: ResponsesRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any] | AsyncIterator[Event]:
    """Return the answer to a body, or its events."""
    assert call.responses is not None, "the deployment has a store"
    if body.store and call.responses.is_off:
        raise RequestError("store=true: this server keeps no responses.", hint="Remove it.", status=400, param="store")
    before: list[dict[str, Any]] = []
    num_bytes = call.num_bytes
    if body.previous_response_id is not None:
        stored = call.responses.get(body.previous_response_id, param="previous_response_id")
        before, num_bytes = stored.messages, num_bytes + stored.size_bytes
    given = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else messages_of(body.input)
    messages = [*before, *given]
    chat_body = _chat_body(body, messages)

    def begin() -> _Job:
        prompt = chat_prompt(generator, chat_body, call, adapter)
        return _Job(generator, body, call, name, prompt, AnswerMessage(generator, chat_body, prompt), messages)

    job: _Job = await generator.run(begin, num_bytes=num_bytes, timeout_s=call.within(body.timeout_s).timeout_s)
    return job.stream() if body.stream else await job.whole()


def _chat_body(body: ResponsesRequest, messages: list[dict[str, Any]]) -> ChatRequest:
    fields = body.model_dump(include=_OF_CHAT, exclude_unset=True, by_alias=True)
    head = [{"role": "system", "content": body.instructions}] if body.instructions is not None else []
    more: dict[str, Any] = {
        "messages": [*head, *messages],
        "max_completion_tokens": body.max_output_tokens,
        "tools": None if not body.tools else [_chat_tool(tool.model_dump()) for tool in body.tools],
        "tool_choice": body.tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "chat_template_kwargs": body.chat_template_kwargs,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "logprobs": bool(body.include or body.top_logprobs),
        "top_logprobs": body.top_logprobs,
    }
    if body.tool_choice is not None and not isinstance(body.tool_choice, str):
        more["tool_choice"] = {"type": "function", "function": {"name": body.tool_choice.name}}
    if (form := body.format) is not None and form.type != "text":
        more["response_format"] = {"type": form.type}
        if form.type == "json_schema":
            more["response_format"]["json_schema"] = {"name": form.name or "answer", "schema": form.schema_}
    return parse(ChatRequest, fields | {key: value for key, value in more.items() if value is not None})


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


class _Job:
    """One body: its prompt, and how the answer is written."""

    def __init__(
        self,
        generator: Generator,
        body: ResponsesRequest,
        call: Call,
        name: str,
        prompt: Prompt,
        message: AnswerMessage,
        messages: list[dict[str, Any]],
    ) -> None:
        self._generator, self._body, self._call, self._name = generator, body, call, name
        self._prompt, self._message, self._messages = prompt, message, messages
        self._items = OutputItems()
        self._num_tokens = self._num_cached = self._number = 0

    async def whole(self) -> dict[str, Any]:
        """Return the response."""
        async for piece in self._generator.answer(self._prompt):
            for _ in self._take(piece):
                pass
        return await self._finished()

    async def stream(self) -> AsyncIterator[Event]:
        """Yield the events of the response, as they come."""
        pieces = self._generator.answer(self._prompt)
        # The first tokens come before the first event: until then a problem has a status.
        first = await anext(pieces)
        for kind in ("response.created", "response.in_progress"):
            yield self._event({"type": kind, "response": self._response("in_progress")})
        try:
            for event in self._take(first):
                yield self._event(event)
            async for piece in pieces:
                for event in self._take(piece):
                    yield self._event(event)
        except NeuronError as error:
            status, problem = problem_of(error)
            code = "server_error" if status >= 500 or status == 408 else "invalid_prompt"
            failed = self._response("failed") | {"error": {"code": code, "message": problem["error"]["message"]}}
            yield self._event({"type": "response.failed", "response": failed})
            return
        response = await self._finished()
        yield self._event({"type": f"response.{response['status']}", "response": response})

    def _event(self, event: Event) -> Event:
        self._number += 1
        return {**event, "sequence_number": self._number - 1}

    def _take(self, piece: Piece) -> Iterator[Event]:
        """Yield the events of new tokens."""
        self._num_tokens += len(piece.tokens)
        self._num_cached = piece.num_cached
        self._reason = piece.finish_reason
        logprobs: list[Any] = []
        if piece.logprobs and (self._body.include or self._body.top_logprobs):
            as_ids = self._body.return_tokens_as_token_ids
            logprobs = chat_logprobs(self._generator, piece.logprobs, as_ids=as_ids)["content"]
        yield from self._items.feed(self._message.feed(piece), logprobs)
        if piece.finish_reason is not None:
            yield from self._items.finish(is_whole=piece.finish_reason == "stop")

    async def _finished(self) -> dict[str, Any]:
        is_whole = self._reason == "stop"
        response = self._response("completed" if is_whole else "incomplete")
        if not is_whole:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["usage"] = await self._generator.run(self._usage)
        store = self._call.responses
        if store is not None and not store.is_off and self._body.store is not False:
            store.put(response, [*self._messages, *messages_of(self._items.parsed())])
        return response

    def _usage(self) -> dict[str, Any]:
        reasoning = self._generator.tokenizer.encode(self._items.reasoning, add_special_tokens=False)
        num_prompt = len(self._prompt.ids)
        return {
            "input_tokens": num_prompt,
            "input_tokens_details": {"cached_tokens": self._num_cached},
            "output_tokens": self._num_tokens,
            "output_tokens_details": {"reasoning_tokens": len(reasoning) if self._items.reasoning else 0},
            "total_tokens": num_prompt + self._num_tokens,
        }

    def _response(self, status: str) -> dict[str, Any]:
        body, settings = self._body, self._prompt.settings
        return {
            "id": f"resp_{self._call.request_id}",
            "object": "response",
            "created_at": self._call.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self._name,
            "output": list(self._items.done),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "store": body.store is not False and self._call.responses is not None and not self._call.responses.is_off,
            "temperature": settings.get("temperature", 0.0),
            "text": {"format": {"type": "text"} if body.format is None else _plain(body.format)},
            "tool_choice": _plain(body.tool_choice) or "auto",
            "tools": [_plain(tool) for tool in body.tools or ()],
            "top_p": settings.get("top_p", 1.0),
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
            "metadata": body.metadata or {},
        }


def _plain(value: object) -> Any:
    return value.model_dump(by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value
