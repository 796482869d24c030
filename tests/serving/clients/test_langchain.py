"""LangChain's ChatOpenAI: answers, streams, tools, and structured output."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from pydantic import BaseModel

from tests.serving.conftest import KEY
from tests.serving.test_chat import CALL

langchain_openai = pytest.importorskip("langchain_openai")


def look(a: bool) -> str:
    """Look at something."""
    return "sun"


@pytest.fixture(scope="module")
def chat(url):
    return langchain_openai.ChatOpenAI(
        model="tiny", base_url=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=8, max_retries=0
    )


def test_answers_and_streams(chat, client):
    same = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0
    )
    answer = chat.invoke("Hello")
    assert answer.content == same.choices[0].message.content
    assert answer.usage_metadata["output_tokens"] == 8
    assert "".join(chunk.content for chunk in chat.stream("Hello")) == answer.content
    assert asyncio.run(chat.ainvoke("Hello")).content == answer.content
    assert [one.content for one in chat.batch(["Hello", "Hello"])] == [answer.content] * 2


def test_tools(chat):
    constrained = chat.bind_tools([look]).bind(extra_body={"structured_outputs": {"regex": CALL}}, max_tokens=120)
    (called,) = constrained.invoke("Hello").tool_calls
    assert (called["name"], called["args"]) == ("look", {"a": True})
    forced = chat.bind_tools([look], tool_choice="look").bind(max_tokens=60)
    assert [one["name"] for one in forced.invoke("Hello").tool_calls] == ["look"]


class Place(BaseModel):
    """A place."""

    city: Literal["Bern", "Rome"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(url, method):
    chat = langchain_openai.ChatOpenAI(
        model="tiny", base_url=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=60, max_retries=0
    )
    assert chat.with_structured_output(Place, method=method).invoke("Where?").city in ("Bern", "Rome")


def test_responses(url, chat):
    newer = langchain_openai.ChatOpenAI(
        model="tiny", base_url=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=8, use_responses_api=True
    )
    assert newer.invoke("Hello").text == chat.invoke("Hello").content
    assert "".join(chunk.text for chunk in newer.stream("Hello")) == chat.invoke("Hello").content
