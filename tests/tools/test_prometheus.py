"""`neuron-monitor-prometheus`: lines in, a page of metrics out, and errors."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request

import pytest

from optimum_neuron.tools import prometheus
from tests.tools.test_prometheus_metrics import make_line, runtime_groups


def run(lines, monkeypatch, *words):
    monkeypatch.setattr("sys.stdin", lines)
    return prometheus.main(["--address", "127.0.0.1", "--port", "0", *words])


def test_lines_are_served_until_input_ends(monkeypatch, capsys):
    pages = []

    def lines():
        url = re.search(r"http://\S+", capsys.readouterr().err)[0]
        assert urllib.request.urlopen(url).read() == b""
        yield json.dumps(make_line(runtime_groups()))
        yield "\n"
        for path in (url, f"{url}?x=1", url.removesuffix("metrics")):
            with urllib.request.urlopen(path) as answer:
                pages.append((answer.headers["Content-Type"], answer.read().decode()))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/other")
        pages.append(url)

    assert run(lines(), monkeypatch) == 0
    *served, url = pages
    assert len(set(served)) == 1 and served[0][0] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'runtime_tag="chat"' in served[0][1]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


@pytest.mark.parametrize("text", ["not json", "[]", "{}", '{"instance_info": 3}', "[" * 100_000])
def test_invalid_line_of_neuron_monitor_is_error_with_its_number(text, monkeypatch, capsys):
    assert run([json.dumps(make_line()), text], monkeypatch) == 1
    output = capsys.readouterr().err
    assert "Line 2 of stdin" in output and "Traceback" not in output


def test_occupied_port_and_invalid_address_are_errors(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run([], monkeypatch, "--port", str(taken.getsockname()[1])) == 1
    assert "--port" in capsys.readouterr().err
    assert run([], monkeypatch, "--address", "203.0.113.7") == 1


@pytest.mark.parametrize("port", ["-1", "65536", "a", "\u00b2"])
def test_invalid_port_is_error(port, mistyped):
    assert "--port" in mistyped(prometheus.main, f"--port={port}")
