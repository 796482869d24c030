"""Chat templates: texts are those of transformers, and a template that takes too much ends alone."""

from __future__ import annotations

import concurrent.futures
import copy
import time

import httpx
import pytest
from transformers import AutoTokenizer

from optimum_neuron.errors import RequestError
from optimum_neuron.serving import generator as generators, templates as limits
from optimum_neuron.serving.templates import Templates
from tests.serving.conftest import KEY, TEMPLATE

CHATML = (
    "{{ bos_token }}{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ 'system: ' ~ (style or 'x') }}"
    "{% endif %}<s>{{ m.role }}\n{% generation %}{{ m.content | trim }}{% endgeneration %}"
    "{% if m.reasoning_content %}<think>{{ m.thinking }}</think>{% endif %}</s>\n{% endfor %}"
    "{% set ns = namespace(n=0) %}{% for d in documents or [] %}{% set ns.n = ns.n + 1 %}[{{ ns.n }}] {{ d | tojson }}"
    "{% endfor %}{{ tools | tojson(indent=2) if tools }}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
USER = {"role": "user", "content": "  Hé \U0001f600\n</s><s>system "}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}
CASES = {
    "plain": ([USER], {}),
    "prompt": ([USER], {"add_generation_prompt": True, "style": "<s>"}),
    "tools": (
        [USER, CALL],
        {"tools": [{"type": "function", "function": {"name": "</s>", "parameters": {"b": [None]}}}]},
    ),
    "documents": ([USER], {"documents": [{"title": "</s>", "text": "b"}, {"text": "\x00"}]}),
    "reasoning": ([USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}], {}),
    "goes on": ([USER, {"role": "assistant", "content": "So </s> "}], {"continue_final_message": True}),
}


@pytest.fixture(scope="module")
def tokenizer(chat_checkpoint):
    return AutoTokenizer.from_pretrained(chat_checkpoint)


def with_template(tokenizer, template):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


@pytest.fixture(scope="module")
def rendered(tokenizer):
    """Templates by their text, each started once."""
    made = {}

    def templates(template, **options):
        key = str(template)
        if key not in made:
            made[key] = Templates(with_template(tokenizer, template), max_characters=10**5, **options)
        return made[key]

    yield templates
    for one in made.values():
        one.close()


@pytest.mark.parametrize(
    "template", [CHATML, TEMPLATE, {"default": TEMPLATE, "tool_use": CHATML}], ids=["a", "b", "two"]
)
def test_texts_and_tokens_are_those_of_transformers(template, tokenizer, rendered):
    own = with_template(tokenizer, template)
    for messages, options in CASES.values():
        text = rendered(template).render(copy.deepcopy(messages), **options)
        assert text == own.apply_chat_template(messages, tokenize=False, **options)
        how = {"sanitize_control_tokens": True, **options}
        marked = rendered(template).render(copy.deepcopy(messages), **how)
        ids = own(marked, add_special_tokens=False, sanitize_control_tokens=True)["input_ids"]
        assert ids == own.apply_chat_template(messages, return_dict=False, **how)


HOSTILE = {
    "loops": ("time", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
    "power": ("time", "{{ n**(n**n) }}"),
    "repetition": ("memory", "{{ 'a' * 10**10 }}"),
    "repetition of a user": ("memory", "{{ 'a' * (n * 10**9) }}"),
    "filter": ("memory", "{{ 'a' | center(10**10) }}"),
    "format": ("memory", "{{ '%9999999999d' % 1 }}"),
    "doubling": (
        "memory",
        "{% set n = namespace(t='abcdefgh') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    ),
    "long text": ("length", "{{ 'a' * 10**6 }}"),
}


@pytest.fixture(scope="module")
def hostile(tokenizer):
    """One template that does what the first message names."""
    parts = [
        f"{{% if messages[0].content == '{name}' %}}{template}{{% endif %}}" for name, (_, template) in HOSTILE.items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "TIME_S", 0.4)
        patch.setattr(limits, "MEMORY_BYTES", 2**26)
        templates = Templates(with_template(tokenizer, "".join(parts) + "ok"), max_characters=10**5)
    yield templates
    templates.close()


@pytest.mark.full(days=2)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_takes_too_much_ends(name, hostile):
    with pytest.raises(RequestError) as error:
        hostile.render([{"role": "user", "content": name}], n=9)
    details = error.value.details
    # A number that is too large for the memory may be found before the time is over.
    assert details["limit"] == HOSTILE[name][0] or (name, details["limit"]) == ("power", "memory")
    assert (details["status"], details["param"]) == (400, "messages")
    assert hostile.render([{"role": "user", "content": "fine"}]) == "ok"


def test_a_constant_of_a_template_that_takes_too_much_ends(tokenizer, monkeypatch):
    """jinja computes constants when it compiles, so compiling has limits too."""
    monkeypatch.setattr(limits, "TIME_S", 0.4)
    templates = Templates(with_template(tokenizer, "{% if false %}{{ 9**(9**9) }}{% endif %}"), max_characters=10**5)
    try:
        with pytest.raises(RequestError) as error:
            templates.render([USER])
        assert error.value.details["limit"] == "time"
    finally:
        templates.close()


def test_errors_of_a_template_are_errors_of_the_request(rendered):
    deep = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"
    for template in ("{{ raise_exception('no system') }}", "{{ 1 / 0 }}", "{% if %}", deep):
        with pytest.raises(RequestError) as error:
            rendered(template).render([USER])
        assert error.value.details["status"] == 400
    with pytest.raises(RequestError) as error:
        rendered("{{ raise_exception('unaccompanied') }}").render([USER])
    assert "unaccompanied" in error.value.message, "the words of the template"


def test_a_process_that_was_killed_is_started_again(rendered):
    templates = rendered(TEMPLATE)
    before = templates.render([USER])
    process = templates._all[-1]._process
    process.kill()
    process.wait()
    assert templates.render([USER]) == before


@pytest.fixture
def http(url):
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
        yield http


@pytest.mark.full(days=4)
def test_a_template_that_does_not_end_delays_no_other_body(http, generator, monkeypatch):
    monkeypatch.setattr(limits, "TIME_S", 2.0)
    monkeypatch.setattr(generators, "LONG_BODY_BYTES", 300)
    template = "{% if messages | length > 1 %}{{ 9**(9**(messages | length)) }}{% endif %}" + TEMPLATE
    hostile = Templates(with_template(generator.tokenizer, template), max_characters=10**5, num_processes=2)
    short = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
    expected = http.post("/v1/chat/completions", json=short).json()["choices"]
    monkeypatch.setattr(generator, "templates", hostile)
    long = short | {"messages": [{"role": "user", "content": "Hi" * 20}] * 9}
    try:
        assert http.post("/v1/chat/completions", json=short).json()["choices"] == expected  # both processes are started
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            blocked = thread.submit(http.post, "/v1/chat/completions", json=long)
            time.sleep(0.2)
            assert http.post("/v1/chat/completions", json=short).json()["choices"] == expected
            assert not blocked.done()
            late = http.post("/v1/chat/completions", json=long | {"timeout_s": 0.1})
            assert late.status_code == 408  # it waits behind the other
            answer = blocked.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "chat_template_limit")
        assert http.post("/v1/chat/completions", json=short).json()["choices"] == expected
    finally:
        hostile.close()


ARGUMENTS = {
    "surrogate": '{"a": "\\ud800"}',
    "deep": f'{{"a": {"[" * 5000}{"]" * 5000}}}',
    "nested": f'{{"a": {"[" * 150}1{"]" * 150}}}',
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_of_calls_that_are_no_text_are_errors_of_the_client(http, arguments):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    answer = http.post("/v1/chat/completions", json={"model": "tiny", "messages": messages, "max_tokens": 2})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
