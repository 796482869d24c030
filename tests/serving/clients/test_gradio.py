"""Gradio's `load_chat`: its web server in a process of its own, and its own client."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.serving.conftest import KEY

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="gradio is not installed")

SCRIPT = """
import sys
import gradio
from gradio_client import Client

chat = gradio.load_chat(sys.argv[1], model="tiny", token=sys.argv[2], streaming=True)
_, page, _ = chat.launch(prevent_thread_lock=True, quiet=True)
answer = Client(page, verbose=False).predict({"text": "Hello", "files": []}, api_name="/open_api_stream")
print(repr(answer))
chat.close(verbose=False)
"""


def test_a_chat_answers(url):
    quiet = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SCRIPT, f"{url}/v1/", KEY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.strip()) > len("''")
