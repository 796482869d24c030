"""Answers are taken apart into reasoning, content, and tool calls, however they are divided."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from optimum_neuron.serving.parsing import AnswerParser, choose_template

ANSWER = (
    "<think>Two cities.</think>Let me look."
    '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>\n'
    '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
)


@pytest.fixture
def template():
    return choose_template(
        SimpleNamespace(chat_template="<think> <tool_call>", all_special_tokens=["</s>"]),
        SimpleNamespace(model_type="llama"),
    ).value


def parts_of(template, text, size):
    parser = AnswerParser(template, "", None)
    parts = [part for start in range(0, len(text), size) for part in parser.feed(text[start : start + size])]
    return parts + parser.flush()


def text_of(parts, kind):
    return "".join(part.text for part in parts if part.kind == kind)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_parts_do_not_depend_on_the_pieces(template, size):
    parts = parts_of(template, ANSWER, size)
    assert text_of(parts, "reasoning") == "Two cities."
    assert text_of(parts, "content").strip() == "Let me look."
    calls = [part for part in parts if part.kind == "tool_call"]
    assert [(call.name, json.loads(call.text)) for call in calls] == [
        ("weather", {"city": "Bern"}),
        ("weather", {"city": "Rome"}),
    ]
    assert len({call.call_id for call in calls}) == 2


@pytest.mark.parametrize("body", ["{no json", "[1, 2]", '{"arguments": {}}'])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_that_is_none_is_content(template, body, size):
    parts = parts_of(template, f"Hm<tool_call>{body}</tool_call> and so on", size)
    assert not [part for part in parts if part.kind == "tool_call"]
    text = text_of(parts, "content")
    assert text.startswith("Hm") and body in text and text.endswith(" and so on")


def test_templates_come_with_their_reasons():
    bare = SimpleNamespace(chat_template="{{ messages }}")
    assert choose_template(bare, SimpleNamespace(model_type="llama")).value is None
    choice = choose_template(bare, SimpleNamespace(model_type="qwen3"))
    assert choice.value is not None and "transformers" in choice.reason
    own = SimpleNamespace(chat_template=None, response_template={"fields": {}})
    assert choose_template(own, SimpleNamespace(model_type="llama")).value == {"fields": {}}
