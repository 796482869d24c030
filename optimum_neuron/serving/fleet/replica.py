"""A replica on Ray: one process that holds a `Deployment` for each of its models.

It answers in parts, each a pair of a kind and plain data: ("answer", data), ("event", chunk) for each chunk of a
stream, or ("problem", (status, body)) for an error, which is data so that no traceback crosses processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ...errors import RequestError
from ..answers import Call
from ..deployment import Deployment
from ..options import ModelSpec, ServeOptions
from ..problems import problem_of
from .config import ReplicaGroup

logger = logging.getLogger(__name__)

Part = tuple[str, Any]


class Replica:
    """Models that are loaded when the replica starts; Ray sends requests to it afterwards."""

    def __init__(self, group: ReplicaGroup, options: ServeOptions) -> None:
        self._group, self._options = group, options
        self._opened: dict[str, Opened] = {}
        if not group.is_multiplexed:
            self._opened = {spec.name: Opened(spec, options) for spec in group.models}

    async def answer(self, endpoint: str, body: object, call: dict[str, Any]) -> AsyncIterator[Part]:
        """Yield the parts of an answer; see `Deployment.answer`."""
        try:
            opened = await self._find(body)
            with opened.in_use():  # nothing is awaited between: another model cannot replace this one meanwhile
                result = await opened.deployment.answer(endpoint, body, Call(**call))
                if isinstance(result, (dict, str)):
                    yield "answer", result
                    return
                async with contextlib.aclosing(result):  # type: ignore[type-var]
                    async for event in result:
                        yield "event", event
        except Exception as error:  # noqa: BLE001  # the ingress raises it again
            yield "problem", problem_of(error)

    async def _find(self, body: object) -> Opened:
        """Return what answers for the model of a body; a wrong body goes to any model, which reports it."""
        name = body.get("model") if isinstance(body, dict) else None
        spec = self._group.names.get(name) if isinstance(name, str) else None
        return await self.open((spec or self._group.models[0]).name)

    async def open(self, name: str) -> Opened:
        """Return a loaded model."""
        return self._opened[name]

    def cards(self) -> list[dict[str, Any]]:
        """Return the cards of `/v1/models` of models that are loaded."""
        return [card for opened in self._opened.values() for card in opened.deployment.models()["data"]]

    def metrics(self) -> dict[str, bytes]:
        """Return the pages of metrics of the loaded models, under the identity of this replica."""
        from ray import serve

        identity = str(serve.get_replica_context().replica_id.unique_id)
        names = list(self._opened)
        # One model has the identity of its replica; several have one each, because their metrics have the same names.
        tags = {name: identity if len(names) == 1 else f"{identity}-{name}" for name in names}
        return {tags[name]: self._opened[name].deployment.metrics.text() for name in names}

    def check_health(self) -> None:
        """Tell Ray to replace this replica if the engine of a model failed."""
        for name, opened in self._opened.items():
            if (error := opened.fatal_error) is not None:
                raise RuntimeError(f"The engine of {name} failed: {error}")

    def __del__(self) -> None:
        """Ray calls it after the last request: give the cores back."""
        for opened in self._opened.values():
            opened.close()


class Opened:
    """One model that is loaded, or an error."""

    def __init__(self, spec: ModelSpec, options: ServeOptions) -> None:
        self._is_closed, self._num_requests, self._changed = False, 0, threading.Condition()
        self.deployment = Deployment([spec], options)
        self.deployment.start()
        self.deployment.registry.wait()
        (model,) = self.deployment.registry.models
        if model.error is not None:
            self._is_closed = True
            raise RequestError(f"The model {spec.name!r} cannot be served: {model.error}", status=503)

    @property
    def fatal_error(self) -> Exception | None:
        """Error that ended the engine of the model, if it has one."""
        (model,) = self.deployment.registry.models
        return model.fatal_error

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the model loaded for a request inside the block."""
        with self._changed:
            self._num_requests += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_requests -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Answer what runs, and give the cores back; closing twice is closing once."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.wait_for(lambda: not self._num_requests, self.deployment.options.drain_timeout_s)
        self.deployment.close()

    __del__ = close
    """Ray calls it when another model replaces this one."""


def multiplexed_replica(num_models: int) -> type[Replica]:
    """Return the class of replicas that load models when they are requested, at most so many at once."""
    from ray import serve

    class MultiplexedReplica(Replica):
        @serve.multiplexed(max_num_models_per_replica=num_models)
        async def load(self, name: str) -> Opened:
            spec = self._group.names[name]
            opened = await asyncio.to_thread(Opened, spec, self._options)
            self._opened[name] = opened
            return opened

        async def open(self, name: str) -> Opened:
            opened: Opened = await self.load(name)
            self._opened = {name: one for name, one in self._opened.items() if not one._is_closed}
            return opened

    return MultiplexedReplica
