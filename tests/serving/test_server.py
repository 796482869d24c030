"""The server as a process: SIGTERM lets running requests end, and takes no others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import httpx

MAIN = "from optimum.commands.optimum_cli import main; main()"


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
            with httpx.Client(base_url=address, timeout=120) as http:
                while http.get("/health").status_code != 200:
                    pass
                body = {"prompt": "Hi", "max_tokens": 180, "ignore_eos": True, "stream": True}
                with http.stream("POST", "/v1/completions", json=body) as answer:
                    lines = answer.iter_lines()
                    first = next(lines)
                    server.send_signal(signal.SIGTERM)
                    rest = [line for line in lines if line]
            assert first.startswith("data: {") and rest[-1] == "data: [DONE]"
            assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
            assert server.wait(60) in (0, -signal.SIGTERM)
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()
