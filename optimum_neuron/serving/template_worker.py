"""A process that renders chats: one JSON request a line on stdin, one JSON answer for each on stdout.

`templates.py` starts it. The first line describes a tokenizer. The system limits the memory of this process and the
processor time of each request: one call in a template can hold Python's lock without end, so no thread could stop it.

    python -m optimum_neuron.serving.template_worker
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase


class ChatTexts(PreTrainedTokenizerBase):
    """A tokenizer of transformers without a vocabulary: its "tokens" of a chat are the text."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(chat_template=facts["chat_template"], chat_control_tokens=facts["chat_control_tokens"])
        self._facts = facts
        tokens = (AddedToken(text, special=is_special) for text, is_special in facts["added_tokens"])
        self._added_tokens = dict(enumerate(tokens))

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Names and texts of the special tokens."""
        return dict(self._facts["special_tokens"])

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens; their ids have no meaning here."""
        return self._added_tokens

    def __call__(self, text: str, **options: object) -> dict[str, str]:
        """Return the text in place of its tokens."""
        return {"input_ids": text}


def main() -> None:
    """Answer requests until stdin closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    facts = json.loads(sys.stdin.buffer.readline() or "null")
    if facts is None:
        return
    texts = ChatTexts(facts)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(facts["memory_bytes"])
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, facts["time_s"])
        answer = _answer(texts, line, facts["num_characters"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _limit_memory(num_bytes: int) -> None:
    """Let this process have so much more memory than now. Systems without /proc, such as macOS, cannot limit it."""
    if not (report := Path("/proc/self/statm")).exists():
        return
    used = int(report.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + num_bytes, used + num_bytes))


def _answer(texts: ChatTexts, line: bytes, num_characters: int) -> dict[str, Any]:
    """Return the text of a chat, or the reason for none."""
    try:
        request = json.loads(line)
        text = texts.apply_chat_template(request.pop("messages"), tokenize=True, return_dict=False, **request)
    except MemoryError:
        return {"limit": "memory"}
    except Exception as error:  # noqa: BLE001  # a template raises what it likes
        return {"error": " ".join(str(error).split())[:500]}
    assert isinstance(text, str), "made by ChatTexts"
    return {"text": text} if len(text) <= num_characters else {"limit": "length", "value": len(text)}


if __name__ == "__main__":
    main()
