"""Every field of every body has a limit, and a value past it is an error that names field, value, and limit."""

from __future__ import annotations

import json

import httpx
import pytest

from optimum_neuron.errors import RequestError
from optimum_neuron.serving.deployment import ENDPOINTS
from optimum_neuron.serving.protocol import check_nested, parse
from tests.serving.conftest import KEY

REQUESTS = sorted({request for _, request, _ in ENDPOINTS.values()}, key=lambda request: request.__name__)


def without_limit(schema, place=""):
    """Places of texts, lists, and mappings in a JSON schema that have no limit."""
    closed = schema.keys() & {"enum", "const", "pattern"}
    limits = {"string": "maxLength", "array": "maxItems"}
    kind = schema.get("type")
    if kind in limits and not closed and limits[kind] not in schema:
        yield place
    if kind == "object" and schema.get("additionalProperties") is not False and "maxProperties" not in schema:
        yield place
    for word in ("properties", "$defs"):
        for name, inner in schema.get(word, {}).items():
            yield from without_limit(inner, f"{place}.{name}")
    for inner in (schema.get("items"), schema.get("additionalProperties"), schema.get("propertyNames")):
        yield from without_limit(inner, place + "[]") if isinstance(inner, dict) else ()
    for inner in schema.get("anyOf", ()):
        yield from without_limit(inner, place)


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda request: request.__name__)
def test_every_field_has_a_limit(request_type):
    assert list(without_limit(request_type.model_json_schema())) == []


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
MESSAGE = CHAT["messages"][0]
TOOL = {"type": "function", "function": {"name": "f"}}
DEEP = json.loads(f'{{"a": {"[" * 150}{"]" * 150}}}')
TOO_MUCH = (
    ("messages", [MESSAGE] * 4097, ("4097", "4096")),
    ("messages.0.content", [{"role": "user", "content": [{"type": "text", "text": ""}] * 4097}], ("4097", "4096")),
    ("messages.0.name", [MESSAGE | {"name": "x" * 513}], ("513", "512")),
    ("tools", [TOOL] * 1025, ("1025", "1024")),
    ("stop", ["a"] * 17, ("17", "16")),
    ("stop", ["a" * 1025], ("1025", "1024")),
    ("bad_words", ["a"] * 129, ("129", "128")),
    ("bad_words.0", ["a" * 257], ("257", "256")),
    ("stop_token_ids", [1] * 1025, ("1025", "1024")),
    ("allowed_token_ids", [1] * 10_001, ("10001", "10000")),
    ("logit_bias", {str(number): 1 for number in range(1025)}, ("1025", "1024")),
    ("logit_bias", {"1": 101.5}, ("101.5", "100")),
    ("logit_bias", {"1" * 5000: 1}, ("5000", "16")),
    ("guided_choice", ["a" * 50_000] * 5, ("250000", "200000")),
    ("guided_regex", "a" * 20_001, ("20001", "20000")),
    ("guided_json", "1" * 200_001, ("200001", "200000")),
    ("guided_json", {"enum": ["x" * 200_000]}, ("200004", "200000")),
    ("chat_template_kwargs", DEEP, ("100",)),
    ("documents.0", [DEEP], ("100",)),
    ("n", 129, ("129", "128")),
    ("top_p", 1.5, ("1.5", "1")),
    ("user", "x" * 513, ("513", "512")),
)


@pytest.mark.parametrize(("place", "value", "numbers"), TOO_MUCH, ids=lambda part: str(part)[:20])
def test_too_much_is_an_error_that_says_how_much(place, value, numbers):
    request = next(request for request in REQUESTS if request.__name__ == "ChatRequest")
    with pytest.raises(RequestError) as error:
        parse(request, CHAT | {place.partition(".")[0]: value})
    assert error.value.details["status"] == 400 and error.value.details["param"] == place
    assert all(number in str(error.value) for number in numbers)


def test_nested_data_is_limited_in_depth_values_and_characters():
    assert check_nested({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
    for wrong in (DEEP, [0] * 50_001, {"x" * 30: "y" * 30}):
        with pytest.raises(ValueError, match="limit is"):
            check_nested(wrong, max_characters=50)


@pytest.fixture(scope="module")
def http(url):
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
        yield http


def nested(levels):
    return f'{{"a": {"[" * levels}{"]" * levels}}}'


RAW = {
    "token of many digits": '"logit_bias": {"%s": 1}' % ("1" * 5000),
    "number of many digits": f'"seed": {"1" * 5000}',
    "large number": f'"seed": {"1" * 4000}',
    "deep": f'"chat_template_kwargs": {nested(700)}',
    "deeper": f'"documents": [{nested(40_000)}]',
    "deep schema": f'"guided_json": {nested(120)}',
    "deep text": f'"guided_json": {json.dumps(nested(20_000))}',
    "not a number": '"temperature": NaN',
    "infinity": '"temperature": -Infinity',
    "past the range": '"temperature": 1e999',
    "surrogate": '"user": "\\ud800"',
    "surrogate in a key": '"chat_template_kwargs": {"\\udfff": 1}',
    "nul": '"stop": ["\\u0000"], "n": 0',
    "field twice": '"max_tokens": 2, "max_tokens": -1',
}


@pytest.mark.parametrize("part", RAW.values(), ids=RAW)
def test_strange_bodies_are_errors_of_the_client(http, part):
    raw = f'{{"model": "tiny", "messages": [{{"role": "user", "content": "a"}}], {part}}}'
    answer = http.post("/v1/chat/completions", content=raw)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"] and "Traceback" not in answer.text
