"""Text of an answer while its tokens come: decodes them step by step, and finds stop strings.

It does not know requests or engines. `TextStream` holds text back until it is sure that no stop string begins in it;
`StopOnText` ends an answer in the engine at the token that completes a stop string.

    stream = TextStream(tokenizer, prompt_ids, stop=("\\n\\n",))
    for tokens in answer:
        print(stream.feed(tokens), end="")
    print(stream.flush())
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import StoppingCriteria

from ..base.transformers_types import PreTrainedTokenizerBase

_CONTEXT = 5
"""Tokens of the prompt that are decoded with the first ones: some tokenizers drop the space of a first token."""

_INCOMPLETE = "\ufffd"
"""A tokenizer's replacement for bytes that are not a whole character yet."""


class Detokenizer:
    """Decodes tokens as they come; the texts add up to the text of all tokens."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> None:
        self._tokenizer, self._skips = tokenizer, skip_special_tokens
        self._ids = list(prompt[-_CONTEXT:])
        self._start, self._end = 0, len(self._ids)
        """Tokens that are decoded again with the next ones, and tokens whose text is out."""

    def feed(self, tokens: Sequence[int], *, is_last: bool = False) -> str:
        """Return the text that these tokens complete."""
        self._ids += tokens
        before = self._decode(self._ids[self._start : self._end])
        text = self._decode(self._ids[self._start :])
        if text.endswith(_INCOMPLETE) and not is_last:
            return ""
        self._start, self._end = self._end, len(self._ids)
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=self._skips, clean_up_tokenization_spaces=False))


class TextStream:
    """The text of one answer, up to its first stop string."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: Sequence[int] = (),
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt, skip_special_tokens=skip_special_tokens)
        self._stop, self._includes, self._min_tokens = tuple(stop), include_stop, min_tokens
        self._held, self._num_tokens = "", 0
        self.stopped_by: str | None = None
        """Stop string that ended the answer."""

    def feed(self, tokens: Sequence[int]) -> str:
        """Return the text that is certain by now."""
        if not self._stop:
            return self._detokenizer.feed(tokens)
        return "".join(self._take(self._detokenizer.feed([token])) for token in tokens if self.stopped_by is None)

    def flush(self) -> str:
        """Return the text that was held back."""
        text = self._detokenizer.feed([], is_last=True)
        if self.stopped_by is None and self._stop:
            text = self._take(text, counts=False)
            text, self._held = text + self._held, ""
        return "" if self.stopped_by is not None and not text else text

    def _take(self, text: str, *, counts: bool = True) -> str:
        self._num_tokens += counts
        text = self._held + text
        if self._num_tokens > self._min_tokens or not counts:
            found = [(place, stop) for stop in self._stop if (place := text.find(stop)) >= 0]
            if found:
                place, self.stopped_by = min(found)
                self._held = ""
                return text[: place + len(self.stopped_by) * self._includes]
        num_held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of a text with which a stop string begins."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


class StopOnText(StoppingCriteria):
    """Ends an answer when its text has a stop string."""

    def __init__(self, stream: TextStream, num_prompt: int) -> None:
        self._stream, self._num_seen = stream, num_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return whether the only row is complete."""
        self._stream.feed(input_ids[0, self._num_seen :].tolist())
        self._num_seen = input_ids.shape[1]
        return torch.tensor([self._stream.stopped_by is not None])
