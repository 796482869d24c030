"""`neuron-top`: one frame into a pipe, a live view in a terminal, errors."""

from __future__ import annotations

import functools
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores
from optimum_neuron.tools import Keys, top
from tests.tools.conftest import ROOT
from tests.waiting import PATIENCE_S, soon


def test_frame_of_running_process(running, capsys):
    assert top.main(["--once"]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    (core,) = [line for line in output.splitlines() if line.startswith("ND 0")]
    assert 0 < float(re.search(r"NC 0 .*?([\d.]+)%", core).group(1)) < 100
    (model,) = [line for line in output.splitlines() if line.strip().startswith("Linear (")]
    calls_per_s, latency_ms = re.search(r"([\d.]+) +([\d.]+) ms", model).groups()
    assert float(calls_per_s) > 0 and float(latency_ms) > 0
    assert "my_app" in output and "model constants" in output and "16.250KB" in output


def test_no_processes(capsys):
    assert top.main([]) == 0  # the output of a test is no terminal
    output = capsys.readouterr().out
    assert "no process holds a core" in output
    user, system = map(float, re.search(r"System vCPU usage +user +([\d.]+)% +system +([\d.]+)%", output).groups())
    assert user + system > 0  # this test


def test_explicit_instance(capsys):
    with claim_cores(INSTANCES["inf2.xlarge"], model="bert"):
        assert top.main(["--once", "--instance", "trn1.2xlarge"]) == 0
    output = capsys.readouterr().out
    assert "instance-type: trn1.2xlarge" in output and "no process holds a core" in output
    assert "processes hold cores of inf2.xlarge too" in output


class Terminal:
    """A terminal in which neuron-top runs."""

    def __init__(self, *words):
        self.shown = ""
        self.main, self.other = pty.openpty()
        self.before = termios.tcgetattr(self.other)
        pipes = {"stdin": self.other, "stdout": self.other, "stderr": self.other}
        terminal = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        command = [sys.executable, "-m", "optimum_neuron.tools.top", *words]
        # A shell's background job, as these tests may be, ignores Ctrl-C, and so do its processes.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen(command, env=os.environ | terminal, preexec_fn=heed, **pipes)

    def until(self, text):
        """Read the display until a text appears in it; earlier output does not count."""
        start, deadline = len(self.shown), time.monotonic() + PATIENCE_S
        while text not in self.shown[start:]:
            assert time.monotonic() < deadline, self.shown[start:]
            if select.select([self.main], [], [], 0.1)[0]:
                self.shown += os.read(self.main, 65536).decode("utf-8", errors="replace")

    def press(self, key):
        os.write(self.main, key.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)
        os.close(self.other)


@pytest.fixture
def terminal():
    opened = []

    def open_terminal(*words):
        opened.append(Terminal(*words))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def test_live_view_follows_process_and_keys_and_restores_terminal(running, terminal):
    live = terminal("--interval", "0.5")
    live.until("my_app")
    assert "\x1b[?1049h" in live.shown  # the other screen
    live.until("Linear (")
    live.press("2")
    live.until(">my_app<")
    live.press("f")
    live.until("TFLOPS, simulated")
    live.press("q")
    live.until("\x1b[?1049l")
    assert live.process.wait(PATIENCE_S) == 0
    assert termios.tcgetattr(live.other) == live.before


def test_ctrl_c_restores_terminal(terminal):
    live = terminal()
    live.until("no process holds a core")
    live.process.send_signal(signal.SIGINT)
    live.until("stopped by Ctrl-C")
    assert live.process.wait(PATIENCE_S) == 130
    assert termios.tcgetattr(live.other) == live.before


def test_ended_process_leaves_the_view(terminal):
    with claim_cores(INSTANCES["inf2.xlarge"], model="bert"):
        live = terminal("-i", "0.2")
        live.until(f" {os.getpid()} ")
    live.until("no process holds a core")


def test_no_keys_without_terminal(tmp_path):
    with open(tmp_path / "empty", "w+") as file, Keys(file) as keys:
        assert keys.wait(0.0) is None


def test_keys_wait_for_one_key():
    main_end, other = pty.openpty()
    with os.fdopen(other, "r") as stdin, Keys(stdin) as keys:
        assert keys.wait(0.0) is None
        os.write(main_end, b"fx")
        assert soon(lambda: keys.wait(0.1)) == "f"
        assert keys.wait(0.1) == "x"
    os.close(main_end)


def test_bad_lines_are_errors(mistyped):
    for interval in ("0", "fast", "nan", "3601"):
        assert "--interval" in mistyped(top.main, "--interval", interval)
    assert "did you mean '--once'" in mistyped(top.main, "--onec")
