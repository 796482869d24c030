"""Items of `/v1/responses`: those of a request as messages of a chat, and an answer as those of a response.

It knows neither models nor HTTP.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from .parsing import Part
from .protocol import FunctionCall, FunctionOutput, InputMessage, InputText, Item, ReasoningItem, ReasoningText

Event = dict[str, Any]


def messages_of(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the messages of a chat; reasoning and calls belong to the message of the model beside them."""
    messages: list[dict[str, Any]] = []

    def message_with(field: str, *, before: tuple[str, ...]) -> dict[str, Any]:
        """The last message if it is the model's and has only fields that come before this one, else a new one."""
        last = messages[-1] if messages else {}
        if last.get("role") != "assistant" or not set(last) <= {"role", field, *before}:
            messages.append(last := {"role": "assistant"})
        return last

    for item in items:
        if isinstance(item, ReasoningItem):
            text = "".join(part.text for part in item.content or item.summary)
            messages.append({"role": "assistant", "reasoning_content": text})
        elif isinstance(item, FunctionCall):
            function = {"name": item.name, "arguments": item.arguments}
            calls = message_with("tool_calls", before=("reasoning_content", "content")).setdefault("tool_calls", [])
            calls.append({"id": item.call_id, "type": "function", "function": function})
        elif isinstance(item, FunctionOutput):
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.text})
        elif item.role == "assistant":
            last = message_with("content", before=("reasoning_content",))
            last["content"] = last.get("content", "") + item.text
        else:
            messages.append({"role": item.role, "content": item.text})
    return messages


class OutputItems:
    """The items of a response while they come, and the events that tell of them."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        """Items that are complete."""
        self._open: dict[str, Any] | None = None

    @property
    def reasoning(self) -> str:
        """All texts of reasoning."""
        items = [item for item in self.done if item["type"] == "reasoning"]
        return "".join(part["text"] for item in items for part in item["content"])

    def feed(self, parts: Sequence[Part], logprobs: list[Any]) -> Iterator[Event]:
        """Yield the events of new parts; probabilities belong to the first text."""
        for part in parts:
            if part.kind == "tool_call":
                yield from self._close()
                yield from self._call(part)
                continue
            kind = "message" if part.kind == "content" else "reasoning"
            if self._open is None or self._open["type"] != kind:
                yield from self._close()
                yield from self._begin(kind)
            yield from self._add(part.text, logprobs if kind == "message" else [])
            logprobs = [] if kind == "message" else logprobs

    def finish(self, *, is_whole: bool) -> Iterator[Event]:
        """Yield the events of the end; an answer without any part has an empty message."""
        if self._open is None and not self.done:
            yield from self._begin("message")
        yield from self._close("completed" if is_whole else "incomplete")

    def parsed(self) -> list[Item]:
        """Return the items as those of a request."""
        items: list[Item] = []
        for item in self.done:
            if item["type"] == "function_call":
                call = {name: item[name] for name in ("call_id", "name", "arguments")}
                items.append(FunctionCall(type="function_call", **call))
            elif item["type"] == "reasoning":
                texts = [ReasoningText(type="reasoning_text", text=part["text"]) for part in item["content"]]
                items.append(ReasoningItem(type="reasoning", content=texts))
            else:
                content = [InputText(text=part["text"]) for part in item["content"]]
                items.append(InputMessage(role="assistant", content=content))  # type: ignore[arg-type]
        return items

    @property
    def _place(self) -> dict[str, Any]:
        assert self._open is not None, "an item is open"
        return {"item_id": self._open["id"], "output_index": len(self.done), "content_index": 0}

    def _begin(self, kind: str) -> Iterator[Event]:
        if kind == "message":
            item: dict[str, Any] = {"id": _name("msg"), "type": "message", "role": "assistant"}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item = {"id": _name("rs"), "type": "reasoning", "summary": []}
            part = {"type": "reasoning_text", "text": ""}
        item |= {"status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": len(self.done), "item": {**item}}
        self._open = {**item, "content": [part]}
        yield {"type": "response.content_part.added", **self._place, "part": {**part}}

    def _add(self, text: str, logprobs: list[Any]) -> Iterator[Event]:
        assert self._open is not None, "an item is open"
        part = self._open["content"][0]
        part["text"] += text
        event = {"type": f"response.{part['type']}.delta", **self._place, "delta": text}
        if part["type"] == "output_text":
            part["logprobs"] += logprobs
            event["logprobs"] = logprobs
        yield event

    def _close(self, status: str = "completed") -> Iterator[Event]:
        """Yield the events of an item's end, if one is open."""
        if self._open is None:
            return
        item, part, place = self._open, self._open["content"][0], self._place
        item["status"] = status
        done = {"type": f"response.{part['type']}.done", **place, "text": part["text"]}
        yield done | ({"logprobs": part["logprobs"]} if part["type"] == "output_text" else {})
        yield {"type": "response.content_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": len(self.done), "item": item}
        self.done.append(item)
        self._open = None

    def _call(self, part: Part) -> Iterator[Event]:
        """Yield the events of a call, which comes as a whole."""
        index = len(self.done)
        item = {"id": _name("fc"), "type": "function_call", "call_id": part.call_id, "name": part.name}
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "arguments": "", "status": "in_progress"},
        }
        place = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": part.text}
        yield {
            "type": "response.function_call_arguments.done",
            **place,
            "name": part.name,
            "arguments": part.text,
        }
        item |= {"arguments": part.text, "status": "completed"}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
        self.done.append(item)


def _name(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
