"""A thread that serves requests, with the interface of transformers' `ContinuousBatchingManager`.

with model.continuous_batching_context_manager() as manager:
    manager.add_request([1, 2, 3], max_new_tokens=8, temperature=0.7, do_sample=True, seed=1)
    for output in manager:
        print(output.generated_tokens)
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.continuous_batching.requests import GenerationOutput, RequestStatus

from ..errors import ConfigError, QueueFullError, ShapeError
from .engine import Engine
from .request import Request, SimulatedTimes
from .sampling import Sampler, make_sampler
from .settings import ManagerSettings

logger = logging.getLogger(__name__)

SECONDS_OF_PATIENCE = 10.0
"""A request waits so long for a place in a full queue, as in transformers."""


class BatchingManager:
    """Takes requests from any thread, and delivers what they get."""

    def __init__(
        self, model: Any, engine: Engine, generation_config: GenerationConfig, settings: ManagerSettings
    ) -> None:
        self.model, self.engine = model, engine
        self.generation_config, self.settings = generation_config, settings
        self.warmed_up = True
        """Graphs are compiled before a manager is made."""
        self.fatal_error: Exception | None = None
        self._changed = threading.Condition(engine.lock)
        self._outputs: collections.deque[GenerationOutput] = collections.deque()
        self._handlers: dict[str, tuple[Callable[[GenerationOutput], Any], asyncio.AbstractEventLoop]] = {}
        self._thread: threading.Thread | None = None
        self._stop: str | None = None
        self._has_ended = False
        self._num_pauses, self._is_paused = 0, False
        self._num_requests = 0

    # The thread.

    def warmup(self) -> None:
        """Nothing to do, see `warmed_up`."""

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and not self._has_ended

    def start(self) -> None:
        """Start the thread; requests may be waiting already."""
        if self.is_running():
            logger.warning("The manager is running already.")
            return
        self._stop, self.fatal_error, self._has_ended = None, None, False
        self._thread = threading.Thread(target=self._serve, name="continuous batching", daemon=True)
        self._thread.start()

    def stop(
        self,
        block: bool = True,
        timeout: float | None = None,
        keep_for_next_session: bool = False,
        hard_stop: bool = False,
    ) -> None:
        """Stop once all requests are answered.

        Args:
            block: wait for that.
            timeout: wait at most so many seconds.
            keep_for_next_session: let the model's next call of `init_continuous_batching` return this manager.
            hard_stop: fail the requests that are not answered, instead.
        """
        with self._changed:
            self._stop = "now" if hard_stop else "answered"
            self._changed.notify_all()
        if keep_for_next_session:
            self.model._cached_continuous_batching_manager = self
        if block:
            self.join(time.perf_counter(), timeout)

    def join(self, stop_trigger_time: float = 0.0, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds; transformers logs the time since the first one."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning("The thread of continuous batching did not end in %s seconds.", timeout)

    def destroy(self) -> None:
        """Stop, and give the pool of blocks back; the manager cannot start again."""
        if self.is_running():
            self.stop(hard_stop=True)
        self._deliver(self.engine.fail_all(RuntimeError("The manager was stopped.")))  # of one that never started
        self.engine.runner.close()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Run no graphs inside; requests go on afterwards.

        Raises:
            RuntimeError: the thread does not run.
        """
        with self._changed:
            self._num_pauses += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_paused or not self.is_running())
        try:
            if not self.is_running():
                raise RuntimeError("Nothing to pause: the manager does not run.")
            yield
        finally:
            with self._changed:
                self._num_pauses -= 1
                self._changed.notify_all()

    def _serve(self) -> None:
        try:
            while self._wait_for_work():
                self._deliver(self.engine.step())
        except Exception as error:  # noqa: BLE001  # whoever waits for a result has to hear of it
            logger.exception("Continuous batching failed.")
            self.fatal_error = error
        left = self.engine.fail_all(self.fatal_error or RuntimeError("The manager was stopped."))
        with self._changed:
            self._has_ended = True
            self._deliver(left)

    def _wait_for_work(self) -> bool:
        """Wait for a request; return False when the thread shall end."""
        with self._changed:
            while True:
                self._is_paused = self._num_pauses > 0
                if self._is_paused:
                    self._changed.notify_all()
                elif self._stop == "now" or (self._stop and not self.engine.has_work):
                    return False
                elif self.engine.has_work:
                    return True
                self._changed.wait()

    # Requests.

    def add_request(
        self,
        input_ids: Sequence[int],
        request_id: str | None = None,
        max_new_tokens: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        eos_token_id: int | list[int] | None = None,
        seed: int | None = None,
        adapter_name: str | None = None,
        **settings: Any,
    ) -> str | None:
        """Let a request wait for its turn; return its name, or None if the manager is stopping.

        Args:
            input_ids: the prompt.
            request_id: its name; None makes one.
            max_new_tokens: most tokens of the answer; None for the settings', or as many as the cache holds.
            streaming: deliver every token, not only the whole answer.
            record_timestamps: note the time of each token.
            eos_token_id: tokens that end the answer; None for the settings'.
            seed: seed of the request's random stream.
            adapter_name: its LoRA adapter, "__base__" for the base model; None: the active one.
            **settings: any setting of generation, and `logits_processor`, `stopping_criteria`, `tokenizer`.

        Raises:
            ConfigError: a setting is unknown or not supported, or there is such a request.
            ShapeError: the prompt is empty, too long, or has ids that are no tokens.
            QueueFullError: the queue had no place for 10 seconds.
        """
        if self._stop or self.fatal_error is not None:
            logger.warning("The manager is stopping: the request is not taken.")
            return None
        settings |= {"max_new_tokens": max_new_tokens, "eos_token_id": eos_token_id}
        return self.add_siblings(
            input_ids,
            settings,
            request_id=request_id,
            seed=seed,
            streaming=streaming,
            record_timestamps=record_timestamps,
            adapter_name=adapter_name,
        )[0]

    def add_siblings(
        self,
        input_ids: Sequence[int],
        settings: Mapping[str, Any],
        *,
        request_id: str | None = None,
        seed: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        adapter_name: str | None = None,
    ) -> list[str]:
        """Let the `num_return_sequences` answers to a prompt wait for their turn; return their names.

        Arguments are those of `add_request`, whose errors are raised; each answer has a name and a seed of its own.
        """
        prompt = self._checked(input_ids)
        with self._changed:
            number = self._num_requests
            self._num_requests += 1
        name = f"req_{number}" if request_id is None else request_id
        count = settings.get("num_return_sequences") or self.generation_config.num_return_sequences or 1
        first = self._seed(number) if seed is None else seed
        samplers = [self._sampler(prompt, settings, first + index) for index in range(count)]
        requests = [
            Request(
                request_id=name if index == 0 else f"{name}__child#{index - 1}",
                prompt=prompt,
                max_new_tokens=sampler.max_new_tokens,
                sampler=sampler,
                streaming=streaming,
                record_timestamps=record_timestamps,
                adapter=self.model.hold_adapter(adapter_name),
            )
            for index, sampler in enumerate(samplers)
        ]
        try:
            self._queue(requests)
        except (ConfigError, QueueFullError):
            for request in requests:
                if not self.engine.has(request.request_id):
                    request.adapter.release()
            raise
        return [request.request_id for request in requests]

    def _sampler(self, prompt: list[int], settings: Mapping[str, Any], seed: int) -> Sampler:
        return make_sampler(
            self.model,
            prompt,
            self.generation_config,
            settings,
            num_slots=self.engine.runner.num_slots,
            seed=seed,
            wants_logprobs=self.settings.return_logprobs,
        )

    def add_requests(
        self,
        inputs: Iterable[Sequence[int]],
        max_new_tokens: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        **settings: Any,
    ) -> list[str | None]:
        """Let several requests wait, with the same settings; return their names."""
        settings |= {
            "max_new_tokens": max_new_tokens,
            "streaming": streaming,
            "record_timestamps": record_timestamps,
        }
        return [self.add_request(prompt, **settings) for prompt in inputs]

    def cancel_request(self, request_id: str) -> None:
        """End a request with what it has by now; one that is over stays as it is."""
        self.engine.cancel(request_id)
        with self._changed:
            self._changed.notify_all()

    def _checked(self, input_ids: Sequence[int]) -> list[int]:
        prompt = torch.as_tensor(input_ids).flatten().tolist()
        vocabulary = self.model.config.get_text_config(decoder=True).vocab_size
        wrong = [token for token in prompt if not isinstance(token, int) or not 0 <= token < vocabulary]
        if not prompt or wrong:
            problem = f"{wrong[0]!r}, which is no token of the vocabulary of {vocabulary}" if wrong else "no tokens"
            raise ShapeError(f"The prompt has {problem}.", hint="Pass token ids of the model's tokenizer.", ids=wrong)
        return prompt

    def _seed(self, number: int) -> int:
        if self.settings.seed is not None:
            return self.settings.seed + number
        return int(torch.empty((), dtype=torch.int64).random_())

    def _queue(self, requests: Sequence[Request]) -> None:
        limit, waiting = self.settings.max_queue_size, self.engine.scheduler.waiting
        with self._changed:
            for request in requests:
                if self.engine.has(request.request_id):
                    message = f"A request named {request.request_id!r} is not over yet."
                    raise ConfigError(message, hint="Pass another request_id.", request_id=request.request_id)
                has_room = not limit or self._changed.wait_for(
                    lambda: len(waiting) < limit, SECONDS_OF_PATIENCE if self.is_running() else 0
                )
                if not has_room:
                    message = f"The queue is full: {limit} requests wait."
                    raise QueueFullError(message, hint="Try again later, or raise max_queue_size.", limit=limit)
                self.engine.add(request)
            self._changed.notify_all()

    # Results.

    def get_result(self, request_id: str | None = None, timeout: float | None = None) -> GenerationOutput | None:
        """Return the next output, of one request if it is named; None after `timeout` seconds, or if none can come."""

        def found() -> GenerationOutput | None:
            return next((one for one in self._outputs if request_id in (None, one.request_id)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or not self.is_running(), timeout)
            output = found()
            if output is not None:
                self._outputs.remove(output)
            return output

    def __iter__(self) -> Iterator[GenerationOutput]:
        """Yield outputs as they come, until the manager stops."""
        while (output := self.get_result()) is not None:
            yield output

    def request_id_iter(self, request_id: str) -> Iterator[GenerationOutput]:
        """Yield the outputs of one request, until it is over."""
        while (output := self.get_result(request_id)) is not None:
            yield output
            if output.is_finished():
                return

    def register_result_handler(self, request_id: str, callback: Callable[[GenerationOutput], Any]) -> None:
        """Call a function for every output of a request in the running event loop, instead of keeping it here."""
        with self._changed:
            self._handlers[request_id] = callback, asyncio.get_running_loop()

    def _deliver(self, requests: Iterable[Request]) -> None:
        with self._changed:
            for request in requests:
                if not (request.streaming or request.is_over):
                    continue
                handler = self._handlers.get(request.request_id)
                if handler is None:
                    self._outputs.append(output_of(request))
                else:
                    callback, loop = handler
                    loop.call_soon_threadsafe(callback, output_of(request))
                if request.is_over:
                    self._handlers.pop(request.request_id, None)
            self._changed.notify_all()


@dataclasses.dataclass
class ServedOutput(GenerationOutput):
    """transformers' output of a request, with its times on the simulated device."""

    simulated: SimulatedTimes = dataclasses.field(default_factory=SimulatedTimes)


def output_of(request: Request) -> ServedOutput:
    """Return what a request has got by now."""
    return ServedOutput(
        request_id=request.request_id,
        prompt_ids=request.prompt,
        generated_tokens=[*request.answer],
        logprobs=[*request.logprobs],
        error=None if request.error is None else str(request.error),
        status=RequestStatus(request.status),
        created_time=request.created_s,
        lifespan=(request.started_s, request.ended_s),
        timestamps=[*request.timestamps] if request.record_timestamps else None,
        simulated=dataclasses.replace(request.simulated),
    )
