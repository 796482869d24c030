"""Sends requests to replicas on Ray: what a `Deployment` is for one process, for a fleet.

    fleet = Fleet(config)
    answer = await fleet.answer("/v1/chat/completions", {"model": "chat", "messages": [...]}, Call())

A request whose replica dies is sent to another one, unless parts of its answer have been streamed: then the stream ends
with an error that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from ...base.foreign import plain_value
from ...errors import QueueFullError, RequestError, nearest
from ..answers import Call, Event
from ..deployment import ENDPOINTS, Answer, Deployment
from ..models import require_name
from ..problems import too_slow
from ..response_store import ResponseStore
from .config import FleetConfig, ReplicaGroup
from .metrics import FleetMetrics
from .replica import Part

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 4
"""Replicas that a request is sent to, one after the other as they die."""
STATUS_EVERY_S = 1.0
METRICS_EVERY = 5
"""Times that the state is asked for between two times that metrics are."""
_UNKNOWN: dict[str, Any] = {"created": 0, "max_model_len": None, "runner": None, "endpoints": []}
"""Facts of a model before a replica has loaded it."""


class Fleet(Deployment):
    """A deployment whose models are in the replicas of a cluster."""

    metrics: FleetMetrics

    def __init__(self, config: FleetConfig) -> None:
        # The models are elsewhere, so there is no registry.
        self.config, self.options, self.metrics = config, config.server, FleetMetrics()
        self.is_draining, self.responses = False, ResponseStore(0)
        self._groups = {name: group for group in config.groups for name in group.names}
        self._handles: dict[str, Any] = {}
        self._status: dict[str, Any] = {"status": "loading", "models": {}}
        self._cards: dict[str, dict[str, Any]] = {}
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="fleet-status", daemon=True)

    def start(self) -> None:
        """Begin to watch the replicas."""
        self._watcher.start()

    def close(self) -> None:
        """End watching."""
        self._ended.set()

    async def answer(self, endpoint: str, body: object, call: Call) -> Answer:
        """Answer the body of a request; see `Deployment.answer`."""
        if endpoint not in ENDPOINTS:
            message = f"There is no endpoint {endpoint}{nearest(endpoint, ENDPOINTS) or '.'}"
            raise RequestError(message, hint=f"Use {', '.join(ENDPOINTS)}.", status=404)
        group, spec_name = self._find(body)
        loop = asyncio.get_running_loop()
        deadline = None if call.timeout_s is None else loop.time() + call.timeout_s
        for attempt in range(1, MOST_ATTEMPTS + 1):
            left_s = None if deadline is None else max(deadline - loop.time(), 0.001)
            parts = self._send(group, spec_name, endpoint, body, dataclasses.replace(call, timeout_s=left_s))
            try:
                async with asyncio.timeout_at(deadline):  # a replica may be long in coming
                    part = await anext(parts)
            except TimeoutError:
                raise too_slow(call.timeout_s or 0) from None
            except _Died as error:
                logger.warning("Request %s: its replica died (%s), attempt %d.", call.request_id, error, attempt)
                continue
            except BaseException:
                await parts.aclose()
                raise
            kind, value = part
            return value if kind == "answer" else _events(value, parts)
        message = f"{MOST_ATTEMPTS} replicas died while they answered the request."
        raise RequestError(message, hint="Send it again, or a smaller one.", status=503, code="replica_died")

    def _find(self, body: object) -> tuple[ReplicaGroup, str]:
        """Return the group of a body's model and the model's name; a wrong body goes to any group, which reports it."""
        name = body.get("model") if isinstance(body, dict) else None
        if not isinstance(name, str | None):
            name = next(iter(self._groups))
        models = [spec.name for group in self.config.groups for spec in group.models]
        group = self._groups[require_name(name, list(self._groups), default=models[0] if len(models) == 1 else None)]
        return group, group.names[name].name if name else models[0]

    async def _send(
        self, group: ReplicaGroup, name: str, endpoint: str, body: object, call: Call
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of a replica's answer; leaving the loop cancels it there."""
        from ray.exceptions import NodeDiedError, RayActorError, WorkerCrashedError
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

        handle = self._handle(group).options(stream=True, multiplexed_model_id=name if group.is_multiplexed else "")
        response = handle.answer.remote(endpoint, body, dataclasses.asdict(call))
        is_over = False
        try:
            async for kind, value in response:
                is_over = kind in ("answer", "problem")
                if kind == "problem":
                    raise _problem(*value)
                yield kind, value
            is_over = True
        except (RayActorError, NodeDiedError, WorkerCrashedError, ReplicaUnavailableError) as error:
            is_over = True
            raise _Died(type(error).__name__) from error
        except BackPressureError as error:
            is_over = True
            limit = self.options.max_queue_size
            message = f"{limit} requests wait for a replica of {name}."
            raise QueueFullError(message, hint="Try again later.", limit=limit) from error
        except DeploymentUnavailableError as error:
            is_over = True
            message = f"No replica of {name} could be started."
            raise RequestError(message, hint="See the log of Ray.", status=503, code="model_failed") from error
        finally:
            if not is_over:
                response.cancel()

    def _handle(self, group: ReplicaGroup) -> Any:
        from ray import serve

        if group.name not in self._handles:
            self._handles[group.name] = serve.get_deployment_handle(group.name, app_name=self.config.application)
        return self._handles[group.name]

    def models(self) -> dict[str, Any]:
        """Return the list of `/v1/models`."""
        return {"object": "list", "data": [self._group_card(name, group) for name, group in self._groups.items()]}

    def _group_card(self, name: str, group: ReplicaGroup) -> dict[str, Any]:
        spec = group.names[name]
        is_adapter = name != spec.name
        state = self._status["models"].get(spec.name, {}).get("state", "loading")
        card = {
            "id": name,
            "object": "model",
            "owned_by": "optimum-neuron",
            "root": spec.adapters[name] if is_adapter else spec.source,
            "parent": spec.name if is_adapter else None,
        }
        return {**_UNKNOWN, **self._cards.get(name, {}), **card, "state": state}

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the report of `/health`: 200 if every model has a replica, else 503."""
        status = self._status
        return (200 if status["status"] == "ready" else 503), status

    def _watch(self) -> None:
        """Ask Ray for the state of the replicas, again and again."""
        turn = 0
        while not self._ended.wait(STATUS_EVERY_S):
            turn += 1
            try:
                self._status = self._ask_status()
                models = self._status["models"]
                running = [one for one in self.config.groups if models[one.models[0].name]["replicas"].get("RUNNING")]
                for group in running:
                    self._ask_cards(group)
                if turn % METRICS_EVERY == 0:
                    self.metrics.pages = self._ask_metrics(running)
            except Exception as error:  # noqa: BLE001  # Ray's controller may be restarting
                logger.warning("The state of the replicas is not known: %s", error)

    def _ask_status(self) -> dict[str, Any]:
        from ray import serve

        application = serve.status().applications.get(self.config.application)
        deployments = {} if application is None else application.deployments
        models: dict[str, Any] = {}
        for group in self.config.groups:
            deployment = deployments.get(group.name)
            states = {} if deployment is None else deployment.replica_states
            names = {str(plain_value(state)): count for state, count in states.items()}
            state = "ready" if names.get("RUNNING") else "loading"
            if deployment is not None and "FAILED" in str(deployment.status) and state != "ready":
                state = "failed"
            models |= {spec.name: {"state": state, "replicas": names} for spec in group.models}
        found = {report["state"] for report in models.values()}
        status = next((one for one in ("failed", "loading") if one in found), "ready")
        return {"status": status, "models": models}

    def _ask_cards(self, group: ReplicaGroup) -> None:
        if group.is_multiplexed or group.models[0].name in self._cards:
            return
        cards = self._handle(group).cards.remote().result(timeout_s=5)
        self._cards |= {card["id"]: card for card in cards}

    def _ask_metrics(self, groups: list[ReplicaGroup]) -> dict[str, bytes]:
        """Return the pages of all replicas."""
        responses = [self._handle(group).broadcast("metrics") for group in groups]
        return {
            tag: page
            for response in responses
            for pages in response.results(timeout_s=5)
            for tag, page in pages.items()
        }


class _Died(Exception):
    """The replica that answered a request died."""


def _problem(status: int, body: dict[str, Any]) -> RequestError:
    """Return the error of a replica, which reported it as data."""
    error = body["error"]
    return RequestError(error["message"], status=status, code=error["code"], param=error["param"])


async def _events(first: Event, parts: AsyncGenerator[Part, None]) -> AsyncIterator[Event]:
    """Yield the chunks of a stream."""
    num_events = 1
    async with contextlib.aclosing(parts):
        yield first
        try:
            async for _, event in parts:
                num_events += 1
                yield event
        except _Died as error:
            message = f"The replica died after it had streamed {num_events} chunks; the answer is incomplete."
            hint = "Send the request again."
            raise RequestError(message, hint=hint, status=503, code="replica_died", num_events=num_events) from error
