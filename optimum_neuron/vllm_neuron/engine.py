"""`LLMEngine`, which returns outputs step by step, and `AsyncLLMEngine`, which yields them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self

from ..errors import ConfigError
from .adapters import LoRARequest
from .core import Core
from .engine_args import AsyncEngineArgs, EngineArgs
from .facts import ModelFacts
from .inputs import PromptType
from .keywords import log_unused
from .outputs import RequestOutput
from .requests import Job, Progress
from .sampling_params import SamplingParams

logger = logging.getLogger(__name__)


class LLMEngine:
    """An engine that takes requests and returns outputs step by step.

    Example:
        ```python no-run
        engine = LLMEngine.from_engine_args(EngineArgs(model="tiny_llama", max_model_len=128))
        engine.add_request("0", "Hello", SamplingParams(max_tokens=4))
        while engine.has_unfinished_requests():
            for output in engine.step():
                print(output.outputs[0].text)
        ```
    """

    def __init__(self, engine_args: EngineArgs) -> None:
        self.core = Core(engine_args)
        self.engine_args = engine_args
        self._outputs: queue.Queue[tuple[Job, RequestOutput | BaseException | None]] = queue.Queue()
        self._running: dict[str, tuple[Job, concurrent.futures.Future[Any]]] = {}

    @classmethod
    def from_engine_args(
        cls,
        engine_args: EngineArgs,
        usage_context: object = None,
        stat_loggers: object = None,
        enable_multiprocessing: bool = False,
    ) -> Self:
        """Compile or load the model, and return its engine.

        Args:
            engine_args: arguments of the engine.
            usage_context: no effect; vLLM counts uses by it.
            stat_loggers: no effect; `/metrics` of the server has the counters.
            enable_multiprocessing: no effect; one process drives all cores.
        """
        given = {
            "usage_context": usage_context,
            "stat_loggers": stat_loggers,
            "enable_multiprocessing": enable_multiprocessing or None,
        }
        log_unused(name for name, value in given.items() if value is not None)
        return cls(engine_args)

    def add_request(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams | None = None,
        arrival_time: float | None = None,
        lora_request: LoRARequest | None = None,
        priority: int = 0,
    ) -> None:
        """Begin a request; `step` returns its outputs.

        Args:
            request_id: its name, which no other request has.
            prompt: a text, tokens, or a mapping with either.
            params: its parameters; None for the model's.
            arrival_time: no effect.
            lora_request: its adapter.
            priority: requests with a lower number come first.
        """
        _require_new(str(request_id), self._running)
        (job,) = self.core.jobs(
            prompt, params, lora_request=lora_request, priority=[priority], request_id=str(request_id)
        )
        self._running[job.request_id] = job, self.core.loop.submit(_pump(self.core, job, self._outputs))

    def step(self) -> list[RequestOutput]:
        """Wait until a request has something new; return all that is new."""
        if not self._running and self._outputs.empty():
            return []
        received = [self._outputs.get()]
        while not self._outputs.empty():
            received.append(self._outputs.get())
        outputs = []
        for job, output in received:
            if self._running.get(job.request_id, (None,))[0] is not job:
                continue  # it was aborted
            if isinstance(output, RequestOutput):
                outputs.append(output)
            else:
                del self._running[job.request_id]
                if output is not None:
                    raise output
        return outputs

    def abort_request(self, request_id: str | Iterable[str]) -> None:
        """End requests; `step` returns no further outputs of them."""
        for _, future in _taken(self._running, request_id):
            future.cancel()

    def has_unfinished_requests(self) -> bool:
        """Return whether a request runs or waits."""
        return bool(self._running)

    def get_num_unfinished_requests(self) -> int:
        """Return how many requests run or wait."""
        return len(self._running)

    def get_tokenizer(self, lora_request: LoRARequest | None = None) -> Any:
        """Return the tokenizer."""
        return self.core.backend.tokenizer

    @property
    def model_config(self) -> ModelFacts:
        """Facts of the model: `max_model_len`, `hf_config`, and others."""
        return self.core.facts

    def get_model_config(self) -> ModelFacts:
        """Return the same."""
        return self.core.facts


def _require_new(request_id: str, running: Mapping[str, object]) -> None:
    if request_id in running:
        raise ConfigError(
            f"A request named {request_id!r} is not over yet.", hint="Pass another request_id.", request_id=request_id
        )


def _taken(running: dict[str, Any], request_id: str | Iterable[str]) -> list[Any]:
    """Take one or several requests from those that run, as far as they are not over."""
    names = [request_id] if isinstance(request_id, str) else request_id
    return [running.pop(name) for name in names if name in running]


async def _pump(core: Core, job: Job, outputs: queue.Queue[Any]) -> None:
    """Put the outputs of a request into a queue, and None or its error at the end."""
    error: BaseException | None = None
    try:
        async for output in core.outputs(Progress(core.generator, job), streaming=True):
            outputs.put((job, output))
    except asyncio.CancelledError:
        raise
    except Exception as failed:  # noqa: BLE001  # `step` raises it
        error = failed
    outputs.put((job, error))


class AsyncLLMEngine:
    """An engine for asyncio.

    Example:
        ```python no-run
        async def complete(prompt: str) -> None:
            engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model="tiny_llama", max_model_len=128))
            async for output in engine.generate(prompt, SamplingParams(max_tokens=4), "0"):
                print(output.outputs[0].text)
        ```
    """

    def __init__(self, engine_args: EngineArgs) -> None:
        self.core = Core(engine_args)
        self.engine_args = engine_args
        self._running: dict[str, asyncio.Task[Any]] = {}

    @classmethod
    def from_engine_args(
        cls,
        engine_args: AsyncEngineArgs | EngineArgs,
        start_engine_loop: bool = True,
        usage_context: object = None,
        stat_loggers: object = None,
    ) -> Self:
        """Compile or load the model, and return its engine.

        Args:
            engine_args: arguments of the engine.
            start_engine_loop: no effect; the loop always runs.
            usage_context: no effect; vLLM counts uses by it.
            stat_loggers: no effect; `/metrics` of the server has the counters.
        """
        given = {
            "start_engine_loop": None if start_engine_loop else False,
            "usage_context": usage_context,
            "stat_loggers": stat_loggers,
        }
        log_unused(name for name, value in given.items() if value is not None)
        return cls(engine_args)

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams | None = None,
        request_id: str = "",
        lora_request: LoRARequest | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the outputs of a request as they come; leaving the loop ends it.

        Args:
            prompt: a text, tokens, or a mapping with either.
            sampling_params: its parameters; None for the model's.
            request_id: its name, which no other request has; empty for a number.
            lora_request: its adapter.
            trace_headers: no effect.
            priority: requests with a lower number come first.
        """
        core = self.core

        def work() -> Job:
            (job,) = core.jobs(
                prompt,
                sampling_params,
                lora_request=lora_request,
                priority=[priority],
                request_id=str(request_id) or None,
            )
            return job

        job = await core.generator.run(work)
        _require_new(job.request_id, self._running)
        progress = Progress(core.generator, job)
        received: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            async for output in core.outputs(progress, streaming=True):
                received.put_nowait(output)

        task = asyncio.ensure_future(read())
        task.add_done_callback(received.put_nowait)
        self._running[job.request_id] = task
        try:
            while isinstance(output := await received.get(), RequestOutput):
                yield output
            if task.cancelled():
                yield progress.aborted()
            else:
                task.result()
        finally:
            if self._running.get(job.request_id) is task:
                del self._running[job.request_id]
            task.cancel()

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests; the last output of each has what was said until then, and the finish reason "abort"."""
        for task in _taken(self._running, request_id):
            task.cancel()

    async def get_tokenizer(self, lora_request: LoRARequest | None = None) -> Any:
        """Return the tokenizer."""
        return self.core.backend.tokenizer

    async def get_model_config(self) -> Any:
        """Return facts of the model."""
        return self.core.facts

    async def check_health(self) -> None:
        """Raise the error that ended the engine, if there is one."""
        if (error := self.core.backend.fatal_error) is not None:
            raise error

    def shutdown(self) -> None:
        """End the engine, and give its cores back."""
        self.core.close()

    shutdown_background_loop = shutdown


@contextlib.asynccontextmanager
async def build_async_engine_client_from_engine_args(
    engine_args: AsyncEngineArgs,
    disable_frontend_multiprocessing: bool = False,
    usage_context: object = None,
) -> AsyncIterator[AsyncLLMEngine]:
    """Yield an engine for asyncio, which ends with the context.

    Args:
        engine_args: arguments of the engine.
        disable_frontend_multiprocessing: no effect: the engine is in this process in any case.
        usage_context: no effect; vLLM counts uses by it.
    """
    engine = await asyncio.to_thread(AsyncLLMEngine.from_engine_args, engine_args, usage_context=usage_context)
    try:
        yield engine
    finally:
        engine.shutdown()
