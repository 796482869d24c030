"""`/v1/responses` through OpenAI's client: items, streams, tools, structured output, and conversations."""

from __future__ import annotations

import json

import openai
import pytest

from tests.serving.test_chat import CALL

MODEL = "tiny"
TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "strict": True,
}


def respond(client, given="Hello", **settings):
    return client.responses.create(
        **{"model": MODEL, "input": given, "max_output_tokens": 8, "temperature": 0} | settings
    )


def test_an_answer_is_that_of_a_chat(client):
    response = respond(client, instructions="Be kind")
    messages = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hello"}]
    same = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=0)
    assert response.output_text == same.choices[0].message.content
    assert (response.usage.input_tokens, response.usage.output_tokens) == (same.usage.prompt_tokens, 8)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]}]
    assert respond(client, parts, instructions="Be kind").output_text == response.output_text


def test_a_stream_has_openais_events(client):
    whole = respond(client)
    with client.responses.stream(model=MODEL, input="Hello", max_output_tokens=8, temperature=0) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_calls_are_items(client, stream):
    settings = {
        "extra_body": {"structured_outputs": {"regex": CALL}},
        "max_output_tokens": 120,
        "tools": [TOOL],
        "temperature": 1.0,
        "seed": 1,
    }
    settings["extra_body"]["seed"] = settings.pop("seed")
    if stream:
        events = list(respond(client, stream=True, **settings))
        response = events[-1].response
        done = next(event for event in events if event.type == "response.function_call_arguments.done")
        assert (done.name, json.loads(done.arguments)) == ("look", {"a": True})
    else:
        response = respond(client, **settings)
    reasoning, message, call = response.output
    assert (len(reasoning.content[0].text), message.content[0].text.strip(), call.name) == (3, "ok", "look")
    assert json.loads(call.arguments) == {"a": True} and response.status == "completed"
    assert response.usage.output_tokens_details.reasoning_tokens == 3
    items = [{"role": "user", "content": "Hello"}, *(item.model_dump(exclude_none=True) for item in response.output)]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
    expected = len("u:Helloa:ok<tool_call>True</tool_call>t:suna:")
    assert respond(client, items).usage.input_tokens == expected
    # The server has the call, so its result is enough.
    later = respond(client, items[-1:], previous_response_id=response.id)
    assert later.usage.input_tokens == expected and later.previous_response_id == response.id


def test_a_call_can_be_forced(client):
    choice = {"type": "function", "name": "look"}
    response = respond(client, tools=[TOOL], tool_choice=choice, max_output_tokens=60, temperature=1.0)
    assert [item.type for item in response.output] == ["function_call"]
    assert response.tool_choice.name == "look"


def test_structured_output(client):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    assert json.loads(respond(client, text=form, max_output_tokens=30).output_text)["n"] in (1, 2)


def test_responses_are_kept_and_forgotten(client, deployment):
    first = respond(client, "One", instructions="Be kind")
    second = respond(client, "Two", previous_response_id=first.id)
    assert second.usage.input_tokens == len(f"u:Onea:{first.output_text}u:Twoa:".encode())
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    for forgotten in (lambda: client.responses.retrieve(first.id), lambda: respond(client, previous_response_id="x")):
        with pytest.raises(openai.NotFoundError):
            forgotten()
    unstored = respond(client, "One", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


def test_the_oldest_responses_make_room():
    from optimum_neuron.serving.response_store import ResponseStore

    store = ResponseStore(max_bytes=300)
    for number in range(20):
        store.put({"id": str(number), "text": "x" * 50}, [])
    assert store.get("19").response["text"]
    with pytest.raises(ValueError, match="kept"):
        store.get("0")


@pytest.mark.parametrize(
    "settings, param",
    [
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, None),
        ({"input": []}, None),
        ({"conversation": "x"}, "conversation"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, None),
    ],
    ids=str,
)
def test_unsupported_fields_are_named(client, settings, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": MODEL, "input": "Hi", **settings})
    assert param is None or caught.value.param == param
