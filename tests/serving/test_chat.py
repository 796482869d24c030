"""`/v1/chat/completions` through OpenAI's clients: streams, tools, structured output."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import BaseModel

MODEL = "tiny"
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "boolean"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
CALL = '<think>[a-z]{3}</think>ok <tool_call>\\{"name": "look", "arguments": \\{"a": true\\}\\}</tool_call>'
"""A constraint by which a random model calls a tool."""


def chat(client, messages=HELLO, **settings):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0} | settings
    )


def test_an_answer_is_that_to_the_templates_prompt(client):
    answer = chat(client, logprobs=True, top_logprobs=2)
    same = client.completions.create(model=MODEL, prompt="u:Helloa:", max_tokens=8, temperature=0)
    assert answer.choices[0].message.content == same.choices[0].text
    assert answer.usage == same.usage
    content = answer.choices[0].logprobs.content
    assert len(content) == 8 and all(one.top_logprobs[0].logprob >= one.logprob for one in content)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert chat(client, parts).choices[0].message.content == answer.choices[0].message.content


@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_adds_up(client, n):
    settings = {"temperature": 1.0, "seed": 3, "n": n}
    whole = [choice.message.content for choice in chat(client, **settings).choices]
    texts, roles = [""] * n, [None] * n
    for chunk in chat(client, stream=True, **settings):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] = roles[choice.index] or choice.delta.role
    assert texts == whole
    assert roles == ["assistant"] * n


def test_many_clients_at_once_get_the_answers_that_they_get_alone(url, client):
    from openai import AsyncOpenAI

    alone = [chat(client, temperature=1.0, seed=seed).choices[0].message.content for seed in range(6)]

    async def ask(shared, seed):
        text = ""
        stream = await chat(shared, temperature=1.0, seed=seed, stream=True)
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        return text

    async def ask_all():
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=client.api_key, max_retries=0) as shared:
            return await asyncio.gather(*(ask(shared, seed) for seed in range(6)))

    assert asyncio.run(ask_all()) == alone


def test_an_answer_is_taken_apart(client):
    extra = {"extra_body": {"structured_outputs": {"regex": CALL}}, "max_tokens": 120, "tools": [TOOL]}
    choice = chat(client, **extra).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert len(choice.message.reasoning_content) == 3 and choice.message.content == "ok"
    called = choice.message.tool_calls[0].function
    assert (called.name, json.loads(called.arguments)) == ("look", {"a": True})
    deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True, **extra)]
    assert (
        "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == choice.message.reasoning_content
    )
    assert [call.function.name for delta in deltas for call in delta.tool_calls or []] == ["look"]
    quiet = chat(client, **{**extra, "extra_body": {**extra["extra_body"], "include_reasoning": False}})
    assert not hasattr(quiet.choices[0].message, "reasoning_content")


@pytest.mark.parametrize("forced", ["required", {"type": "function", "function": {"name": "look"}}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_can_be_forced(client, forced, stream):
    settings = {"tools": [TOOL], "tool_choice": forced, "parallel_tool_calls": False, "max_tokens": 100, "seed": 1}
    answer = chat(client, temperature=1.0, stream=stream, **settings)
    if stream:
        chunks = list(answer)
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        reason = chunks[-1].choices[0].finish_reason
    else:
        calls, reason = answer.choices[0].message.tool_calls, answer.choices[0].finish_reason
    assert [call.function.name for call in calls] == ["look"]
    assert type(json.loads(calls[0].function.arguments)["a"]) is bool
    assert reason == ("tool_calls" if forced == "required" else "stop")


def test_a_conversation_with_calls_is_read_by_the_template(client):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a": true}'}}
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "1", "content": "sun"}]
    counted = client.post("/tokenize".replace("/", "../", 1), body={"messages": messages}, cast_to=object)
    expected = "u:Helloa:<tool_call>True</tool_call>t:suna:"
    assert counted["count"] == len(expected)
    assert chat(client, messages).usage.prompt_tokens == len(expected)


class Place(BaseModel):
    city: str
    number: int


def test_structured_output_of_openais_client(client):
    schema = Place.model_json_schema()
    schema["properties"]["city"] = {"enum": ["Bern", "Rome"]}  # a random model writes strings without an end
    schema["properties"]["number"] = {"type": "integer", "minimum": 0, "maximum": 99}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    text = chat(client, response_format=form, max_tokens=80, temperature=1.0, seed=4).choices[0].message.content
    assert Place.model_validate_json(text).city in ("Bern", "Rome")
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, {"a": None}]}}}
    assert json.loads(chat(client, response_format=form, max_tokens=30).choices[0].message.content) in (1, {"a": None})


def test_json_mode(client):
    form, bias = {"type": "json_object"}, {"logit_bias": {"95": 20.0, "128": 3.0}}
    text = chat(client, response_format=form, max_tokens=100, **bias).choices[0].message.content
    assert text.startswith("{")
