"""`/v1/chat/completions`: the next message of a chat, with tool calls and reasoning."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ..errors import RequestError
from .answers import Call, Event, chat_logprobs, simulated_times, usage
from .conversation import plain_tools, template_ids
from .generator import Generator, Piece, Prompt
from .parsing import AnswerParser, Part, choose_template
from .protocol import ChatRequest, NamedTool
from .sampling import make_prompt
from .structured import grammar_of, schema_grammar


async def chat(
    generator: Generator, body: ChatRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any] | AsyncIterator[Event]:
    """Return the answer to a body, or its chunks."""

    def begin() -> _Job:
        return _Job(generator, body, call, name, chat_prompt(generator, body, call, adapter))

    job: _Job = await generator.run(begin, num_bytes=call.num_bytes, timeout_s=call.within(body.timeout_s).timeout_s)
    return job.stream() if body.stream else await job.whole()


def chat_prompt(generator: Generator, body: ChatRequest, call: Call, adapter: str | None) -> Prompt:
    """Return the prompt of a chat, by the model's template."""
    tools = plain_tools(body)
    grammar, forced = grammar_of(body), _forced_call(body)
    if grammar is not None and forced is not None:
        raise RequestError("A forced tool call cannot have another constraint.", status=400, param="tool_choice")
    return make_prompt(
        generator,
        body,
        template_ids(generator, body, tools),
        request_id=call.request_id,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        num_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        grammar=grammar or forced,
        timeout_s=call.within(body.timeout_s).timeout_s,
        adapter=adapter,
        num_answers=body.n,
        skip_special_tokens=_template(generator, body) is None,
    )


def _forced_call(body: ChatRequest) -> str | None:
    """The grammar of an answer that must be a call: the arguments of a named function, or a list of calls."""
    schemas = {tool.function.name: tool.function.parameters or {"type": "object"} for tool in body.tools or ()}
    if isinstance(body.tool_choice, NamedTool):
        return schema_grammar(schemas[body.tool_choice.function.name], "tools")
    if body.tool_choice != "required":
        return None
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "parameters": schema},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for name, schema in schemas.items()
    ]
    most = {} if body.parallel_tool_calls else {"maxItems": 1}
    return schema_grammar({"type": "array", "minItems": 1, "items": {"anyOf": calls}, **most}, "tools")


def _template(generator: Generator, body: ChatRequest) -> dict[str, Any] | None:
    """How the answer is taken apart; a forced call is JSON."""
    if _forced_call_kind(body) is not None:
        return None
    return choose_template(generator.tokenizer, generator.model.config).value


def _forced_call_kind(body: ChatRequest) -> str | None:
    return (
        "named" if isinstance(body.tool_choice, NamedTool) else "required" if body.tool_choice == "required" else None
    )


class AnswerMessage:
    """One answer: its parts, while it comes and when it is whole."""

    def __init__(self, generator: Generator, body: ChatRequest, prompt: Prompt) -> None:
        template = _template(generator, body)
        text = generator.tokenizer.decode(prompt.ids) if template is not None else ""
        self._body = body
        self._parser = None if template is None else AnswerParser(template, text, plain_tools(body))
        self._forced, self._json = _forced_call_kind(body), ""
        self.num_calls = 0
        self.has_begun = False

    def feed(self, piece: Piece) -> list[Part]:
        """Return the parts that a piece completes."""
        if self._forced:
            self._json += piece.text
            parts = self._forced_calls() if piece.finish_reason else []
        elif self._parser is None:
            parts = [Part(kind="content", text=piece.text)] if piece.text else []
        else:
            parts = self._parser.feed(piece.text) + (self._parser.flush() if piece.finish_reason else [])
        allowed = [part for part in parts if part.kind != "reasoning" or self._body.include_reasoning]
        self.num_calls += sum(part.kind == "tool_call" for part in allowed)
        return allowed

    def _forced_calls(self) -> list[Part]:
        """The calls of a forced answer; one that was cut is delivered as it is, as OpenAI does it."""
        choice = self._body.tool_choice
        if isinstance(choice, NamedTool):
            return [Part(kind="tool_call", name=choice.function.name, text=self._json)]
        try:
            calls = json.loads(self._json)
        except ValueError:
            return [Part(kind="content", text=self._json)]
        return [Part(kind="tool_call", name=one["name"], text=json.dumps(one["parameters"])) for one in calls]

    def finish_reason(self, reason: str | None) -> str | None:
        """Return the reason in the form of chats."""
        return "tool_calls" if reason == "stop" and self.num_calls and self._forced != "named" else reason


class _Job:
    """One body: its prompt, and how answers are written."""

    def __init__(self, generator: Generator, body: ChatRequest, call: Call, name: str, prompt: Prompt) -> None:
        self.generator, self.body, self.prompt = generator, body, prompt
        self._head = {"id": f"chatcmpl-{body.request_id or call.request_id}", "created": call.created, "model": name}
        self._messages = [AnswerMessage(generator, body, prompt) for _ in range(body.n)]

    async def whole(self) -> dict[str, Any]:
        """Return all answers."""
        parts: list[list[Part]] = [[] for _ in self._messages]
        pieces: list[list[Piece]] = [[] for _ in self._messages]
        async for piece in self.generator.answer(self.prompt):
            parts[piece.index] += self._messages[piece.index].feed(piece)
            pieces[piece.index].append(piece)
        choices = [self._choice(index, parts[index], pieces[index]) for index in range(self.body.n)]
        num_tokens = sum(len(piece.tokens) for every in pieces for piece in every)
        head = {**self._head, "object": "chat.completion"}
        num_cached = max(piece.num_cached for every in pieces for piece in every)
        return {**head, "choices": choices, "usage": usage(len(self.prompt.ids), num_tokens, num_cached)}

    def _choice(self, index: int, parts: list[Part], pieces: list[Piece]) -> dict[str, Any]:
        texts = {kind: "".join(part.text for part in parts if part.kind == kind) for kind in ("content", "reasoning")}
        calls = [_called(part) for part in parts if part.kind == "tool_call"]
        message: dict[str, Any] = {"role": "assistant", "content": texts["content"], "refusal": None}
        message |= {"reasoning_content": texts["reasoning"]} if texts["reasoning"] else {}
        if calls:
            message |= {"tool_calls": calls, "content": texts["content"].strip() or None}
        last = pieces[-1]
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(pieces),
            "finish_reason": self._messages[index].finish_reason(last.finish_reason),
            "stop_reason": last.stop_reason,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = [token for piece in pieces for token in piece.tokens]
        return choice

    def _logprobs(self, pieces: list[Piece]) -> dict[str, Any] | None:
        if not self.body.logprobs:
            return None
        every = [one for piece in pieces for one in piece.logprobs]
        return chat_logprobs(self.generator, every, as_ids=self.body.return_tokens_as_token_ids)

    async def stream(self) -> AsyncIterator[Event]:
        """Yield chunks of all answers, as they come."""
        num_tokens = num_cached = 0
        simulated = None
        async for piece in self.generator.answer(self.prompt):
            simulated = piece.simulated or simulated
            num_tokens += len(piece.tokens)
            num_cached = max(num_cached, piece.num_cached)
            message = self._messages[piece.index]
            if not message.has_begun:
                message.has_begun = True
                yield self._event(piece.index, {"role": "assistant", "content": ""})
            num_before = message.num_calls
            deltas = _deltas(message.feed(piece), num_before)
            if piece.finish_reason or (piece.logprobs and not deltas):
                deltas = deltas or [{}]
            for number, delta in enumerate(deltas):
                event = self._event(piece.index, delta)
                if number == 0:
                    event["choices"][0]["logprobs"] = self._logprobs([piece])
                if number == len(deltas) - 1 and piece.finish_reason:
                    reasons = {"finish_reason": message.finish_reason(piece.finish_reason)}
                    event["choices"][0] |= reasons | {"stop_reason": piece.stop_reason}
                if self.body.stream_options is not None and self.body.stream_options.continuous_usage_stats:
                    event["usage"] = usage(len(self.prompt.ids), num_tokens, num_cached)
                yield event
        if self.body.sends_usage:
            head = {**self._head, "object": "chat.completion.chunk"}
            total = usage(len(self.prompt.ids), num_tokens, num_cached)
            times = simulated_times(simulated)
            yield {**head, "choices": [], "usage": total, **({} if times is None else {"simulated": times})}

    def _event(self, index: int, delta: dict[str, Any]) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


def _called(part: Part) -> dict[str, Any]:
    return {"id": part.call_id, "type": "function", "function": {"name": part.name, "arguments": part.text}}


def _deltas(parts: list[Part], num_calls: int) -> list[dict[str, Any]]:
    """Parts in the form of a stream; calls are numbered."""
    deltas: list[dict[str, Any]] = []
    for part in parts:
        if part.kind == "tool_call":
            deltas.append({"tool_calls": [{"index": num_calls, **_called(part)}]})
            num_calls += 1
        else:
            deltas.append({"content" if part.kind == "content" else "reasoning_content": part.text})
    return deltas
