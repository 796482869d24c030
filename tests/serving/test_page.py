"""The chat page: it works offline, shows the model's own sampling defaults, and never inserts an answer as HTML."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import httpx
import pytest

from tests.tree import ROOT

PAGE = (ROOT / "optimum_neuron" / "serving" / "page.html").read_text(encoding="utf-8")


def test_page_loads_nothing_from_elsewhere():
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!docs|metrics|data:,)[^"']*""", PAGE) == []
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', PAGE)
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "http" not in policy


def test_text_of_an_answer_never_becomes_html():
    ways = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment")
    assert [way for way in (*ways, "eval(", "srcdoc") if way in PAGE] == []
    # A link needs a scheme that runs no code.
    assert r"(?:https?:\/\/|mailto:)" in PAGE


def test_page_is_served_and_parameters_are_those_of_the_protocol(url):
    from optimum_neuron.serving.protocol import ChatRequest

    assert httpx.get(url).text == PAGE
    (names,) = re.findall(r"NUMBERS = \[([^]]+)\]", PAGE)
    fields = set(re.findall(r'"(\w+)"', names))
    assert len(fields) == 6 and fields <= set(ChatRequest.model_fields)


def test_models_tell_their_sampling_defaults(client, deployment, monkeypatch):
    own = deployment.registry.models[0].backend.model.generation_config
    for name, value in (("temperature", 0.2), ("top_k", None), ("top_p", None), ("repetition_penalty", None)):
        monkeypatch.setattr(own, name, value)
    (model,) = client.models.list()
    assert model.sampling == {"temperature": 0.2, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}


def test_stream_with_usage_ends_with_simulated_times(client):
    name = client.models.list().data[0].id
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4}
    options |= {"extra_body": {"ignore_eos": True}}
    *_, last = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}], **options)
    assert last.usage.completion_tokens == 4
    assert last.simulated["ttft_ms"] > 0 and last.simulated["tpot_ms"] > 0


def test_answer_without_limit_has_that_of_the_model(client, deployment, monkeypatch):
    """vLLM's `get_max_tokens`: the request's limit, else the model's `max_new_tokens`, and never more than fits."""
    own = deployment.registry.models[0].backend.model.generation_config
    monkeypatch.setattr(own, "max_new_tokens", 3)
    name = client.models.list().data[0].id
    chat = {"model": name, "messages": [{"role": "user", "content": "a"}], "extra_body": {"ignore_eos": True}}
    assert client.chat.completions.create(**chat).usage.completion_tokens == 3
    assert client.chat.completions.create(**chat, max_tokens=5).usage.completion_tokens == 5
    monkeypatch.setattr(own, "max_new_tokens", 10**6)
    assert client.chat.completions.create(**chat).usage.total_tokens == 192


def test_page_offers_what_a_person_needs():
    for part in ('id="theme"', "regenerate", "AbortController", "prefers-color-scheme: dark", "tokens/s", "TPOT"):
        assert part in PAGE


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_browser_runs_the_page(url, tmp_path):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=3000", "--dump-dom", url]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "Ask something." in dom and "no valid key" in dom  # it greets, and shows the error of the list of models


ANSWER = "The numbers:\n| batch | ms |\n| :--- | ---: |\n| 1 | 4.2 |\n\nEnd.\n---\n1. one\n   - inner"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_table_and_rule_may_follow_a_line_of_text(tmp_path):
    """As in GitHub Flavored Markdown, section 4.10, where a table may interrupt a paragraph."""
    page = tmp_path / "page.html"
    page.write_text(f"{PAGE}<script>markdown(find('log'), {json.dumps(ANSWER)})</script>", encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120).stdout
    rows = re.findall(r'<t[hd] style="text-align: (\w+);">([^<]+)<', dom)
    assert rows == [("left", "batch"), ("right", "ms"), ("left", "1"), ("right", "4.2")]
    assert "<p>The numbers:</p><table>" in dom and "<p>End.</p><hr><ol" in dom
