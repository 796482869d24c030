"""What `LLM`, `LLMEngine`, and `AsyncLLMEngine` share: a loaded model, and an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from ..errors import ConfigError, RequestError
from ..options.configuration import is_export
from ..options.option import source_options
from ..options.spelling import spelled
from ..serving import Generator, ModelSpec, ServedModel, load_replicas, sampling_defaults
from ..sources import find_folder, load_source
from .adapters import AdapterCache, LoRARequest
from .classifier import Classifier
from .engine_args import EngineArgs
from .facts import ModelFacts
from .inputs import read_prompts
from .options import read_args
from .outputs import RequestOutput
from .requests import Job, Progress, logprobs_of, prepare
from .sampling_params import RequestOutputKind, SamplingParams
from .spelling import keywords_of


class Core:
    """A loaded model and its requests."""

    def __init__(self, args: EngineArgs) -> None:
        self.args, self._keywords = args, keywords_of(args)
        with spelled(self._keywords):
            spec = read_args(args)
            self.backend = _load(args, dataclasses.replace(spec, adapters={}))
        self.facts = ModelFacts(args, self.backend)
        self.loop = _Loop()
        self._numbers = itertools.count()
        num_places = self.backend.model.neuron_config.max_loras or 0
        self.adapters = AdapterCache(self.backend, num_places, folders=spec.adapters)
        self.close = weakref.finalize(self, _close, self.backend, self.loop)
        """Ends what runs, and gives the cores back; it is called when nobody has the engine any more."""

    @property
    def generator(self) -> Generator:
        """The model, if it answers prompts."""
        if not isinstance(self.backend, Generator):
            raise ConfigError(
                "This model answers no prompts: it was loaded for embeddings or scores.",
                hint='Call embed, encode, or score, or pass task="generate" to LLM.',
                option="task",
                value=self.args.task,
            )
        return self.backend

    def default_params(self) -> SamplingParams:
        """Return the parameters of a request that names none, by the model's `generation_config.json`."""
        if self.args.generation_config not in ("auto", "vllm"):
            raise ConfigError(
                f"generation_config={self.args.generation_config!r} is not supported.",
                hint="Put generation_config.json into the folder of the model, or pass vllm for vLLM's defaults.",
                option="generation_config",
                value=self.args.generation_config,
            )
        own: dict[str, Any] = {}
        if self.args.generation_config == "auto":
            config = self.generator.model.generation_config
            own = dict(sampling_defaults(config))
            own |= {"min_p": config.min_p, "max_tokens": config.max_new_tokens}
            own = {name: value for name, value in own.items() if value is not None}
        changed = dict(self.args.override_generation_config or {})
        if "max_new_tokens" in changed:
            changed["max_tokens"] = changed.pop("max_new_tokens")
        return SamplingParams(**{**own, **changed})

    def jobs(
        self,
        prompts: object,
        params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        prompt_token_ids: object = None,
        lora_request: LoRARequest | list[LoRARequest | None] | None = None,
        priority: list[int] | None = None,
        request_id: str | None = None,
        max_logprobs: int | None = None,
    ) -> list[Job]:
        """Return checked requests, one for each prompt; no graph runs before all are right."""
        generator = self.generator
        given = read_prompts(prompts, prompt_token_ids)
        rows = _each("sampling_params", self.default_params() if params is None else params, len(given))
        adapters = _each("lora_request", lora_request, len(given))
        ranks = _each("priority", 0 if priority is None else priority, len(given))
        jobs = []
        for prompt, one, adapter, rank in zip(given, rows, adapters, ranks, strict=True):
            self.adapters.check(adapter)
            number = next(self._numbers)
            with spelled(self._keywords):
                job = prepare(
                    generator,
                    prompt,
                    one,
                    number=number,
                    request_id=str(number) if request_id is None else request_id,
                    max_logprobs=self.args.max_logprobs if max_logprobs is None else max_logprobs,
                    seed=None if self.args.seed is None else self.args.seed + number,
                    lora_request=adapter,
                    priority=rank,
                )
            jobs.append(job)
        return jobs

    async def outputs(self, progress: Progress, *, streaming: bool) -> AsyncIterator[RequestOutput]:
        """Yield the outputs of a request: one at its end, or one for each token too."""
        generator, job = self.generator, progress.job
        yields_all = streaming and job.params.output_kind is not RequestOutputKind.FINAL_ONLY
        if (number := job.params.prompt_logprobs) is not None:
            scored = await generator.run(
                generator.score, job.prompt.ids, generator.num_tokens if number == -1 else number
            )
            progress.prompt_logprobs = [None, *(logprobs_of(generator, one) for one in scored)]
        async with self.adapters.held(job.lora_request) as adapter:
            async for piece in generator.answer(dataclasses.replace(job.prompt, adapter=adapter, streaming=streaming)):
                new = progress.add(piece)
                if yields_all or progress.is_finished:
                    yield progress.output(new if yields_all else None)

    async def whole(self, job: Job) -> RequestOutput:
        """Return the last output of a request."""
        async for output in self.outputs(Progress(self.generator, job), streaming=False):
            last = output
        return last


def _each(name: str, value: object, number: int) -> list[Any]:
    """A value for each prompt."""
    if not isinstance(value, (list, tuple)):
        return [value] * number
    if len(value) != number:
        raise ConfigError(
            f"{name} has {len(value)} values for {number} prompts.",
            hint="Pass one, or as many as prompts.",
            option=name,
            num_values=len(value),
            num_prompts=number,
        )
    return list(value)


def _load(args: EngineArgs, spec: ModelSpec) -> Any:
    """Compile or open the model of an engine."""
    served = ServedModel(spec=spec, max_queue_size=_ANY_NUMBER, on_finished=lambda name, facts: None)
    try:
        return _classifier(served, args) or load_replicas(served)[0]
    except RequestError as error:  # the server's word for a model that it has no endpoint for
        raise ConfigError(error.message, hint=error.hint, **error.details) from error


_ANY_NUMBER = 2**31
"""Requests that may wait."""


def _classifier(served: ServedModel, args: EngineArgs) -> Classifier | None:
    """The model, if it has several classes, for which the server has no endpoint."""
    if served.spec.options.get("task") != "text-classification":
        return None
    folder = find_folder(served.spec.source, **source_options(served.spec.options))
    config = load_source(folder, trust_remote_code=args.trust_remote_code).config
    return Classifier(served, config, is_exported=is_export(folder)) if config.num_labels > 1 else None


def _close(backend: Any, loop: _Loop) -> None:
    if isinstance(backend, Generator) and backend.manager.is_running():
        backend.manager.stop(hard_stop=True)
    backend.close()
    loop.close()


class _Loop:
    """An event loop in a thread: scripts call from threads that may run one of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Begin work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
