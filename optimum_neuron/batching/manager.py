"""Takes requests and delivers outputs, with the interface of transformers' `ContinuousBatchingManager`.

with model.continuous_batching_context_manager() as manager:
    manager.add_request([1, 2, 3], max_new_tokens=8, temperature=0.7, do_sample=True, seed=1)
    print(manager.get_result().generated_tokens)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.continuous_batching.requests import GenerationOutput

from ..errors import ConfigError, QueueFullError
from ..runtime import rest_threads
from .engine import Engine
from .outbox import Handler, Outbox, output_of
from .request import Request
from .sampling import Sampler, checked_prompt, make_sampler
from .session import Session
from .settings import ManagerSettings

logger = logging.getLogger(__name__)

SECONDS_OF_PATIENCE = 10.0
"""A request waits so long for a place in a full queue, as in transformers."""


class BatchingManager(Session):
    """Takes requests from any thread, and delivers what they get."""

    is_tp_driver = True
    """One process drives all cores."""

    def __init__(
        self, model: Any, engine: Engine, generation_config: GenerationConfig, settings: ManagerSettings
    ) -> None:
        super().__init__(model, engine)
        self.settings = settings
        self.continuous_batching_config = settings.resolved(engine.runner)
        self.use(generation_config)
        self._outbox = Outbox()
        self._num_requests = 0

    def use(self, generation_config: GenerationConfig) -> None:
        """Take the settings of requests that come from now on."""
        self.generation_config = generation_config
        self.num_return_sequences = generation_config.num_return_sequences or 1

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
        priority: int = 0,
        **settings: object,
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
            priority: requests with a lower number come first, as in vLLM.
            **settings: any setting of generation, and `logits_processor`, `stopping_criteria`, `tokenizer`.
        """
        # A place comes first: whoever offers too much is refused before settings are read, which takes longer.
        if self._waits_for_places(1, SECONDS_OF_PATIENCE):
            settings |= {"max_new_tokens": max_new_tokens, "eos_token_id": eos_token_id}
            siblings = self.make_siblings(
                input_ids,
                settings,
                request_id=request_id,
                seed=seed,
                streaming=streaming,
                record_timestamps=record_timestamps,
                adapter_name=adapter_name,
                priority=priority,
            )
            if self.submit(siblings, patience_s=SECONDS_OF_PATIENCE):
                return siblings[0].request_id
        logger.warning("The manager is stopping: the request is not taken.")
        return None

    def make_siblings(
        self,
        input_ids: Sequence[int],
        settings: Mapping[str, Any],
        *,
        request_id: str | None = None,
        seed: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        adapter_name: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        """Return the requests of a prompt with `num_return_sequences` answers, each with a name and a seed of its own.

        Arguments are those of `add_request`, which raises the same errors.
        """
        prompt = checked_prompt(self.model, input_ids)
        with self._changed:
            number = self._num_requests
            self._num_requests += 1
        name = f"req_{number}" if request_id is None else request_id
        count = settings.get("num_return_sequences") or self.num_return_sequences
        first = self._seed(number) if seed is None else seed
        samplers = [self._sampler(prompt, settings, first + index) for index in range(count)]
        return [
            Request(
                request_id=name if index == 0 else f"{name}__child#{index - 1}",
                prompt=prompt,
                max_new_tokens=sampler.max_new_tokens,
                sampler=sampler,
                draft=sampler.draft,
                streaming=streaming,
                record_timestamps=record_timestamps,
                adapter=self.model.hold_adapter(adapter_name),
                priority=priority,
            )
            for index, sampler in enumerate(samplers)
        ]

    def submit(self, siblings: Sequence[Request], *, patience_s: float | None) -> bool:
        """Let requests that belong together wait for their turn; return False if the manager is stopping.

        Args:
            siblings: requests of `make_siblings`; if they are not taken, they let go of their adapters.
            patience_s: how long to wait for a place in a full queue while the thread runs; None for as long as it does.
        """
        is_taken = False
        try:
            is_taken = self._queue(siblings, patience_s)
        finally:
            if not is_taken:
                for request in siblings:
                    request.adapter.release()
        return is_taken

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

    def _seed(self, number: int) -> int:
        if self.settings.seed is not None:
            return self.settings.seed + number
        return int(torch.empty((), dtype=torch.int64).random_())

    def _queue(self, requests: Sequence[Request], patience_s: float | None) -> bool:
        with self._changed:
            if not self._waits_for_places(len(requests), patience_s):
                return False
            for request in requests:
                if self.engine.has(request.request_id):
                    message = f"A request named {request.request_id!r} is not over yet."
                    raise ConfigError(message, hint="Pass another request_id.", request_id=request.request_id)
            for request in requests:
                self.engine.add(request)
            self._changed.notify_all()
        rest_threads()  # the caller may have computed since `start`
        return True

    def _waits_for_places(self, number: int, patience_s: float | None) -> bool:
        """Wait for places in the queue; return False if the manager is stopping."""
        limit, waiting = self.settings.max_queue_size, self.engine.scheduler.waiting

        def has_room() -> bool:
            return not limit or len(waiting) + number <= limit

        with self._changed:
            if number <= limit:
                self._changed.wait_for(lambda: has_room() or not self.is_running(), patience_s)
            if not self._takes_requests:
                return False
            if not has_room():
                message = f"No place for {number} more: {len(waiting)} of at most {limit} requests wait."
                raise QueueFullError(message, hint="Try again later, or raise max_queue_size.", limit=limit)
        return True

    # Results.

    def get_result(self, request_id: str | None = None, timeout: float | None = None) -> GenerationOutput | None:
        """Return the next output, of one request if it is named; None after `timeout` seconds, or if none can come."""
        with self._changed:
            self._changed.wait_for(lambda: self._outbox.has(request_id) or not self.is_running(), timeout)
            return self._outbox.take(request_id)

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

    def register_result_handler(self, request_id: str, callback: Handler) -> None:
        """Call a function for every output of a request in the running event loop, instead of keeping it here."""
        with self._changed:
            self._outbox.register(request_id, callback, asyncio.get_running_loop())

    def _deliver(self, requests: Iterable[Request]) -> None:
        with self._changed:
            for request in requests:
                if request.streaming or request.is_over:
                    self._outbox.put(output_of(request))
            self._changed.notify_all()
