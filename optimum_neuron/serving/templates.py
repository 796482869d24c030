"""Chat templates with limits. A template is code of a checkpoint's author, so another process renders it.

    templates = Templates(tokenizer, max_characters=100_000)
    templates.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)   # "<|im_start|>user\\nHi..."
    templates.close()

The process (`template_worker.py`) is started before the first chat, and again after one that passed a limit.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..base.transformers_types import PreTrainedTokenizerBase
from ..base.wording import size
from ..errors import RequestError

TIME_S = 5.0
"""Most processor time for rendering one chat."""
MEMORY_BYTES = 512 * 2**20
"""Most memory for rendering one chat."""
_HINT = "Send a shorter chat, or serve the model with another chat template."


class Templates:
    """Renders chats by the template of a tokenizer, several at the same time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_characters: int, num_processes: int = 1) -> None:
        self.facts: dict[str, Any] = {
            "chat_template": tokenizer.chat_template,
            "chat_control_tokens": tokenizer.chat_control_tokens,
            "special_tokens": tokenizer.special_tokens_map,
            "added_tokens": [(token.content, token.special) for token in tokenizer.added_tokens_decoder.values()],
            "time_s": TIME_S,
            "memory_bytes": MEMORY_BYTES,
            "num_characters": max_characters,
        }
        self._all = [_Process(self.facts) for _ in range(num_processes)]
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()
        for process in self._all:
            self._idle.put(process)
        self._all[-1].start()  # it is taken first

    def render(self, messages: list[dict[str, Any]], **options: object) -> str:
        """Return the text of a chat.

        Args:
            **options: those of transformers' `apply_chat_template`, and variables of the template. With
                `sanitize_control_tokens`, the text has transformers' marks around control tokens of users.
        """
        process = self._idle.get()
        try:
            answer = process.ask({"messages": messages, **options})
        finally:
            self._idle.put(process)
        if "text" in answer:
            return str(answer["text"])
        if "error" in answer:
            message = f"The chat template rejects the messages: {answer['error']}"
            raise RequestError(message, status=400, param="messages")
        raise _past_limit(answer["limit"], answer.get("value"), self.facts)

    def close(self) -> None:
        """End the processes."""
        for process in self._all:
            process.end()


def _past_limit(limit: str, value: object, facts: dict[str, Any]) -> RequestError:
    """The error of a chat that passed a limit."""
    message = {
        "time": f"The chat template takes longer than {facts['time_s']:g} s for the messages.",
        "memory": f"The chat template needs more than {size(facts['memory_bytes'])} for the messages.",
        "length": f"The chat has {value} characters; the model takes {facts['num_characters']}.",
    }[limit]
    code = "context_length_exceeded" if limit == "length" else "chat_template_limit"
    return RequestError(message, hint=_HINT, status=400, param="messages", code=code, limit=limit)


class _Process:
    """One process; it runs from the first request, or `start`, to `end`, or to a request that passes a limit."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._process: subprocess.Popen[bytes] | None = None
        self._has_facts = False

    def start(self) -> subprocess.Popen[bytes]:
        """Begin to start the process, unless it runs."""
        if self._process is not None and self._process.poll() is not None:
            self.end()  # the system ended it, for its memory
        if self._process is None:
            self._has_facts = False
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.template_worker"],
                cwd=str(Path(__file__).resolve().parents[2]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for this process, which ends the other
            )
        return self._process

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        lines = json.dumps(request).encode() + b"\n"
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        if not self._has_facts:
            lines, self._has_facts = json.dumps(self._facts).encode() + b"\n" + lines, True
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(lines)
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer.endswith(b"\n"):
            return dict(json.loads(answer))
        code = self.end()
        if code == -signal.SIGPROF:
            return {"limit": "time"}
        message = f"The process that renders chat templates ended with exit code {code}."
        raise RequestError(message, hint="Send the request again.", status=503)

    def end(self) -> int | None:
        """End the process, if it runs; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # it did not read its last request
                    pipe.close()
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
