"""A decoder that answers requests: the bridge from asyncio to the engine of continuous batching.

It knows tokens, settings, and texts, and neither HTTP nor the bodies of requests. `Generator.answer` yields pieces of
one or several answers to a prompt while the engine's thread computes them; leaving the loop cancels them.

    async for piece in generator.answer(prompt):
        print(piece.index, piece.text, piece.finish_reason)
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, LogitsProcessor, PreTrainedTokenizerBase

from ..base.foreign import tokenizer_facts
from ..batching import SimulatedTimes
from ..errors import RequestError
from ..runtime import HbmLedger
from .logits import LogprobRecorder, TokenLogprob, token_logprob
from .problems import too_slow
from .structured import Grammars
from .templates import Templates
from .text import StopOnText, TextStream

MakeProcessors = Callable[[], list[LogitsProcessor]]
LONG_BODY_BYTES = 32 * 2**10
"""Larger bodies have a thread of their own for templates, tokens, and constraints: others do not wait for them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt, and how it is answered."""

    ids: list[int]
    max_new_tokens: int
    request_id: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of transformers' `GenerationConfig`."""
    make_processors: MakeProcessors = list
    """Makes the processors of one answer: some have a state."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end an answer: the model's."""
    stop_ids: tuple[int, ...] = ()
    """Other tokens that do."""
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    num_logprobs: int | None = None
    """Likeliest tokens to report for each token; None reports no probabilities."""
    seed: int | None = None
    num_answers: int = 1
    adapter: str | None = None
    streaming: bool = False
    timeout_s: float | None = None
    priority: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """New tokens of one answer."""

    index: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprob]
    finish_reason: str | None = None
    """ "stop" or "length" with the last tokens."""
    stop_reason: int | str | None = None
    """The token or string that ended the answer, other than the model's end."""
    num_cached: int = 0
    """Tokens of the prompt that an earlier request had computed."""
    simulated: SimulatedTimes | None = None
    """Times on the simulated device, with the last tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """Facts about one answer that is over, for metrics."""

    arrival_s: float
    end_s: float
    reason: str
    num_prompt: int | None = None
    """Tokens of the prompt; None for models without tokens."""
    num_tokens: int | None = None
    """Tokens of the answer; None for models that write none."""
    first_token_s: float | None = None
    simulated: SimulatedTimes | None = None


def _most_characters(num_tokens: int, longest: int) -> int:
    """Return the most characters of a text for so many tokens, of which the longest has `longest`.

    Past a million characters, 16 for each token are enough: English has 4 to 5, and more would take seconds.

    >>> _most_characters(192, 10), _most_characters(128_000, 128)
    (1920, 2048000)
    """
    return num_tokens * min(longest, max(16, 10**6 // num_tokens))


class Generator:
    """A loaded decoder with its tokenizer and its engine."""

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_queue_size: int,
        on_finished: Callable[[Finished], None],
        allow_block_sharing: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.settings = dict(settings or {})
        """Keywords of every request to the engine, such as a draft."""
        self.manager = model.init_continuous_batching(
            continuous_batching_config=ContinuousBatchingConfig(
                max_queue_size=max_queue_size, allow_block_sharing=allow_block_sharing
            )
        )
        self.manager.start()
        self.max_length = self.manager.engine.runner.num_slots
        """Most tokens of a prompt and its answer."""
        self.num_tokens = model.config.get_text_config(decoder=True).vocab_size
        longest = max(map(len, tokenizer.get_vocab()), default=1)
        self.max_characters = _most_characters(self.max_length, longest)
        """Most characters of a prompt. A longer text is not tokenized."""
        self.grammars = Grammars(tokenizer, self.num_tokens)
        self._on_finished = on_finished
        has_own = type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template
        self.templates: Templates | None = None
        """The chat template; None without one, or if the tokenizer's class has code of its own for chats."""
        if tokenizer_facts(tokenizer).chat_template and not has_own:
            self.templates = Templates(tokenizer, max_characters=self.max_characters, num_processes=2)
        # One thread for short bodies and one for long ones: the engine needs the rest of the host.
        self._thread, self._long_thread = (
            concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("serving", "serving_long")
        )

    @property
    def fatal_error(self) -> Exception | None:
        """Error that ended the engine."""
        return self.manager.fatal_error

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return len(self.manager.engine.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, for the first time or again."""
        scheduler = self.manager.engine.scheduler
        return len(scheduler.waiting) + len(scheduler.preempted)

    @property
    def ledgers(self) -> tuple[HbmLedger, ...]:
        """Memory of the model's cores."""
        return tuple(self.model.loaded.claim.ledgers)

    def close(self, timeout_s: float | None = None) -> None:
        """Answer all requests, at most for `timeout_s` seconds, then end."""
        if self.manager.is_running():
            self.manager.stop(timeout=timeout_s)
        self.manager.destroy()
        for thread in (self._thread, self._long_thread):
            thread.shutdown(cancel_futures=True)
        if self.templates is not None:
            self.templates.close()
        self.model.close()

    async def run(
        self, work: Callable[..., Any], *arguments: object, num_bytes: int = 0, timeout_s: float | None = None
    ) -> Any:
        """Run work on the host, such as tokenizing, outside of the event loop.

        Args:
            work: the function; it changes no state of the tokenizer.
            num_bytes: size of the body that it is for.
        """
        thread = self._thread if num_bytes <= LONG_BODY_BYTES else self._long_thread
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)
        except TimeoutError:
            raise too_slow(timeout_s or 0) from None

    def check_length(self, num_characters: int, field: str) -> None:
        """Check before tokenizing that a text can fit."""
        if num_characters > self.max_characters:
            message = f"{field} has {num_characters} characters, but the model holds {self.max_length} tokens, "
            message += f"which are {self.max_characters} characters at most."
            hint = "Shorten the text."
            raise RequestError(message, hint=hint, status=400, code="context_length_exceeded", param=field)

    def encode(self, text: str, field: str, *, add_special_tokens: bool) -> list[int]:
        """Return the tokens of a text that can fit."""
        self.check_length(len(text), field)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return ids

    async def answer(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """Yield pieces of all answers; each ends with one that has a `finish_reason`."""
        answers = [_Answer(self, prompt, index) for index in range(prompt.num_answers)]
        outputs: asyncio.Queue[tuple[_Answer, Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        submitted = loop.run_in_executor(self._thread, self._submit, prompt, answers)
        left = set(answers)
        # One timer for the request: a context around each wait would cost time at every token.
        timer = None if prompt.timeout_s is None else loop.call_later(prompt.timeout_s, outputs.put_nowait, None)
        try:
            async with asyncio.timeout(prompt.timeout_s):
                await asyncio.shield(submitted)
            for answer in answers:
                self._listen(answer, outputs)
            while left:
                if (received := await outputs.get()) is None:
                    raise too_slow(prompt.timeout_s or 0)
                answer, output = received
                piece = self._piece(answer, output)
                if piece.finish_reason is not None:
                    left.discard(answer)
                    self._on_finished(answer.facts(output, piece.finish_reason))
                yield piece
        except TimeoutError:
            raise too_slow(prompt.timeout_s or 0) from None
        finally:
            if timer is not None:
                timer.cancel()
            if left:
                submitted.add_done_callback(lambda future: self._drop(future, left))

    def _piece(self, answer: _Answer, output: Any) -> Piece:
        if output.error is None:
            return answer.take(output)
        if not self.manager.is_running():
            raise RequestError(f"The engine failed: {output.error}", hint="Send the request again.", status=503)
        # A request that ends alone has parameters that leave no token, such as two constraints.
        raise RequestError(f"The request failed: {output.error}", hint="Send other parameters.", status=400)

    def _submit(self, prompt: Prompt, answers: Sequence[_Answer]) -> None:
        """Give the answers to the engine, all or none; it runs in the thread of this generator."""
        requests = []
        try:
            for answer in answers:
                seed = None if prompt.seed is None else prompt.seed + answer.index
                requests += self.manager.make_siblings(
                    prompt.ids,
                    answer.settings(),
                    request_id=answer.name,
                    seed=seed,
                    streaming=prompt.streaming,
                    adapter_name=prompt.adapter,
                    priority=prompt.priority,
                )
        except BaseException:
            for request in requests:
                request.adapter.release()
            raise
        if not self.manager.submit(requests, patience_s=0):
            raise RequestError("The server is stopping.", hint="Send the request to another one.", status=503)

    def _listen(self, answer: _Answer, outputs: asyncio.Queue[Any]) -> None:
        self.manager.register_result_handler(answer.name, lambda output: outputs.put_nowait((answer, output)))

    def _drop(self, submitted: asyncio.Future[None], left: set[_Answer]) -> None:
        """Cancel answers that nobody reads any more; outputs of theirs are not kept."""
        if submitted.cancelled() or submitted.exception() is not None:
            return
        for answer in left:
            self.manager.register_result_handler(answer.name, lambda output: None)
            self.manager.cancel_request(answer.name)
            self._on_finished(answer.facts(None, "abort"))

    def score(self, ids: Sequence[int], num_top: int) -> list[TokenLogprob]:
        """Return the probabilities of a prompt's tokens after the first; no graph runs beside it."""
        with self.manager.pause(), torch.inference_mode():
            logits_TV = self.model(torch.tensor([list(ids)]), use_cache=False).logits[0]
        pairs = zip(logits_TV[:-1], ids[1:], strict=True)
        return [token_logprob(logits_V, token, num_top) for logits_V, token in pairs]


class _Answer:
    """One answer of a prompt: its processors, and the text so far."""

    def __init__(self, generator: Generator, prompt: Prompt, index: int) -> None:
        self.index, self.prompt = index, prompt
        self.name = f"{prompt.request_id}-{index}"
        self._tokenizer, self._settings = generator.tokenizer, generator.settings
        self._recorder = None if prompt.num_logprobs is None else LogprobRecorder(prompt.num_logprobs)
        self._text = self._stream()
        self._num_taken = 0
        self._arrival_s = time.perf_counter()
        self._first_token_s: float | None = None

    def _stream(self) -> TextStream:
        prompt = self.prompt
        return TextStream(
            self._tokenizer,
            prompt.ids,
            stop=prompt.stop,
            include_stop=prompt.include_stop,
            min_tokens=prompt.min_tokens,
            skip_special_tokens=prompt.skip_special_tokens,
        )

    def settings(self) -> dict[str, Any]:
        """Keywords of the engine's request."""
        prompt = self.prompt
        recorder = [] if self._recorder is None else [self._recorder]
        criteria = [StopOnText(self._stream(), len(prompt.ids))] if prompt.stop else []
        return {
            **self._settings,
            **prompt.settings,
            "max_new_tokens": prompt.max_new_tokens,
            "eos_token_id": [*prompt.end_ids, *prompt.stop_ids] or -1,
            "num_return_sequences": 1,
            "logits_processor": [*recorder, *prompt.make_processors()],
            "stopping_criteria": criteria,
        }

    def take(self, output: Any) -> Piece:
        """Return the tokens that are new in an output of the engine."""
        tokens = output.generated_tokens[self._num_taken :]
        if self._first_token_s is None and tokens:
            self._first_token_s = time.perf_counter()
        is_last = output.is_finished()
        last = tokens[-1] if is_last and tokens else None
        ended = last in (*self.prompt.end_ids, *self.prompt.stop_ids)
        shown = tokens[:-1] if ended and not self.prompt.include_stop else tokens
        text = self._text.feed(shown)
        text += self._text.flush() if is_last else ""
        logprobs = [] if self._recorder is None or not tokens else self._recorder.take(self._num_taken, tokens)
        self._num_taken += len(tokens)
        stopped = self._text.stopped_by
        reason = ("stop" if ended or stopped else "length") if is_last else None
        return Piece(
            index=self.index,
            text=text,
            tokens=tokens,
            logprobs=logprobs,
            finish_reason=reason,
            stop_reason=stopped or (last if last in self.prompt.stop_ids else None),
            num_cached=output.num_shared,
            simulated=output.simulated if is_last else None,
        )

    def facts(self, output: object, reason: str) -> Finished:
        """Return the times and sizes of the answer."""
        return Finished(
            num_prompt=len(self.prompt.ids),
            num_tokens=self._num_taken,
            arrival_s=self._arrival_s,
            first_token_s=self._first_token_s,
            end_s=time.perf_counter(),
            reason=reason,
            simulated=getattr(output, "simulated", None),
        )
