"""The server as a process: SIGTERM lets running requests end and takes no others; without any model it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.serving import ServeOptions
from optimum_neuron.serving.models import Registry
from tests.raising import raises

MAIN = "from optimum.commands.optimum_cli import main; main()"


@pytest.mark.full(days=4)
def test_sigterm_drains(generator, tmp_path):
    generator.model.save_pretrained(tmp_path / "tiny")
    flags = ["--port", "0", "--drain_timeout_s", "60", "--json"]
    command = [sys.executable, "-c", MAIN, "neuron", "serve", str(tmp_path / "tiny"), *flags]
    environment = {**os.environ, "OPTIMUM_NEURON_INSTANCE": "inf2.24xlarge"}  # with cores that this process has not
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            text = ""
            while not text.endswith("\n}\n"):
                assert (line := server.stdout.readline()), server.stderr.read()[-2000:]
                text += line
            report = json.loads(text)
            assert "url" in report, report
            address = report["url"]
            half = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{"
            place = address.removeprefix("http://").split(":")
            with httpx.Client(base_url=address, timeout=120) as http:
                while http.get("/health").status_code != 200:
                    time.sleep(0.05)
                body = {"prompt": "Hi", "max_tokens": 180, "ignore_eos": True, "stream": True}
                with http.stream("POST", "/v1/completions", json=body) as answer:
                    lines = answer.iter_lines()
                    first = next(lines)
                    with socket.create_connection(place) as leaves, socket.create_connection(place) as stays:
                        for connection in (leaves, stays):
                            connection.sendall(half)
                        for _ in range(3):  # by then the server has read both
                            http.get("/health")
                        leaves.close()
                        server.send_signal(signal.SIGTERM)
                        stays.settimeout(20)
                        assert b" 503 " in stays.recv(1000).split(b"\r\n")[0]
                    rest = [line for line in lines if line]
            assert first.startswith("data: {") and rest[-1] == "data: [DONE]"
            assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
            assert server.wait(60) == 0
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()


def test_server_whose_only_model_cannot_be_loaded_ends_with_its_error(cli, tmp_path):
    result = cli("neuron", "serve", str(tmp_path / "nope"), "--port", "0")
    assert result.code == 1 and "Traceback" not in result.stderr
    assert f"The model folder '{tmp_path / 'nope'}' does not exist" in result.stderr.replace("\n", " ")


class Model:
    """A model that loads, or does not."""

    def __init__(self, error=None):
        self.error, self._error, self.is_logged = None, error, False

    def load(self):
        self.error = self._error

    def log_error(self):
        self.is_logged = True


@pytest.mark.parametrize("errors", [(None,), (None, "a"), ("a", None), ("a",), ("a", "b")], ids=str)
def test_server_ends_only_without_any_model(errors):
    calls = []
    registry = Registry(Model(error and ModelError("It cannot be loaded.", name=error)) for error in errors)
    registry.on_all_failed = lambda: calls.append(1)
    registry.require_any()  # nothing was tried
    registry.start()
    registry.wait()
    registry.models, models = [], registry.models
    registry.close()
    registry.models = models
    if None in errors:
        registry.require_any()
        assert calls == []
        assert [model.is_logged for model in models] == [error is not None for error in errors]
    else:
        with raises(ModelError, name=errors[-1]):
            registry.require_any()
        assert calls == [1] and [model.is_logged for model in models] == [True] * (len(errors) - 1) + [False]


@pytest.mark.parametrize(
    ("name", "value", "limit"), [("port", 99_999, "0 to 65535"), ("max_queue_size", 0, "1 or more")]
)
def test_options_out_of_range_name_their_limits(name, value, limit):
    with pytest.raises(ConfigError) as error:
        ServeOptions(**{name: value})
    assert error.value.details == {"option": name, "value": value} and limit in error.value.hint
