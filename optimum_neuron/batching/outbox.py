"""Outputs of requests: they wait here for whoever takes them, or go to a handler in an event loop at once.

It has no lock: callers hold the manager's.

    outbox = Outbox()
    outbox.put(output)
    outbox.take("req_0")
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Callable

from transformers.generation.continuous_batching.requests import GenerationOutput, RequestStatus

from .request import Request, SimulatedTimes

logger = logging.getLogger(__name__)

Handler = Callable[[GenerationOutput], object]


class Outbox:
    """Outputs in the order of their arrival, which can be taken by request too, and handlers of requests."""

    def __init__(self) -> None:
        self._outputs: collections.OrderedDict[int, GenerationOutput] = collections.OrderedDict()
        self._numbers: dict[str, collections.deque[int]] = {}
        self._count = itertools.count()
        self._handlers: dict[str, tuple[Handler, asyncio.AbstractEventLoop]] = {}

    def put(self, output: GenerationOutput) -> None:
        """Give an output to the handler of its request, or keep it."""
        name = output.request_id
        if name in self._handlers:
            self._call(output)
        else:
            number = next(self._count)
            self._outputs[number] = output
            self._numbers.setdefault(name, collections.deque()).append(number)

    def take(self, request_id: str | None = None) -> GenerationOutput | None:
        """Return the earliest output that is kept, of one request if it is named; None if there is none."""
        if request_id is None:
            number = next(iter(self._outputs), None)
        else:
            number = next(iter(self._numbers.get(request_id, ())), None)
        if number is None:
            return None
        output = self._outputs.pop(number)
        numbers = self._numbers[output.request_id]
        numbers.popleft()
        if not numbers:
            del self._numbers[output.request_id]
        return output

    def has(self, request_id: str | None = None) -> bool:
        """Return whether an output is kept, of one request if it is named."""
        return bool(self._outputs) if request_id is None else request_id in self._numbers

    def register(self, request_id: str, handler: Handler, loop: asyncio.AbstractEventLoop) -> None:
        """Call a function in an event loop for all outputs of a request, also for outputs that are kept."""
        self._handlers[request_id] = handler, loop
        while request_id in self._handlers and (output := self.take(request_id)) is not None:
            self._call(output)

    def _call(self, output: GenerationOutput) -> None:
        name = output.request_id
        handler, loop = self._handlers[name]
        try:
            loop.call_soon_threadsafe(handler, output)
        except RuntimeError as error:  # the loop is closed: whoever listened is gone
            logger.warning("An output of request %s is lost: %s.", name, error)
        if output.is_finished():
            del self._handlers[name]


@dataclasses.dataclass
class ServedOutput(GenerationOutput):
    """transformers' output of a request, with its times on the simulated device, and what was read of it."""

    simulated: SimulatedTimes = dataclasses.field(default_factory=SimulatedTimes)
    num_shared: int = 0
    """Tokens of the prompt that an earlier request had computed."""
    reading: str = ""
    """What was read of its steps, with `on_device_sampling`, and why; empty without."""


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
        num_shared=request.num_shared,
        reading=request.reading,
    )
