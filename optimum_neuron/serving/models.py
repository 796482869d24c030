"""The models of a server: each loads in a thread, is listed meanwhile, and then answers.

What answers depends on the model's task: `runners/choice.py` has the kinds. It does not know HTTP.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.core import Choice
from ..base.wording import counted
from ..errors import CoreBusyError, NeuronError, RequestError, nearest
from .generator import Finished, Generator
from .options import ModelSpec
from .runners import Runner, choose_runner
from .served import Replica

if TYPE_CHECKING:
    from ..base.progress import Progress

logger = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class ServedModel:
    """One model, and how far it is."""

    spec: ModelSpec
    max_queue_size: int
    on_finished: Callable[[str, Finished], None]
    num_replicas: int = 1
    runner: Choice[Runner] | None = None
    """Kind of the model, and why, once its configuration was read."""
    replicas: Sequence[Replica] = ()
    """What answers, once the model is loaded: `Generator`s, or other backends by its task, on separate cores."""
    error: Exception | None = None
    compiling: Progress | None = None
    """How far the export is."""
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))
    started_s: float = dataclasses.field(default_factory=time.perf_counter)
    loaded_s: float | None = None
    _turn: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    @property
    def backend(self) -> Replica | None:
        """The first replica; None before the model is loaded."""
        return self.replicas[0] if self.replicas else None

    @property
    def generators(self) -> list[Generator]:
        """The replicas, if they generate text."""
        return [replica for replica in self.replicas if isinstance(replica, Generator)]

    def least_busy(self) -> Replica:
        """Return the replica with the fewest requests; equal ones take turns."""
        start = next(self._turn) % len(self.replicas)
        in_turn = [*self.replicas[start:], *self.replicas[:start]]
        return min(in_turn, key=lambda replica: replica.num_running + replica.num_waiting)

    @property
    def fatal_error(self) -> Exception | None:
        """Error that ended a replica."""
        return next((one.fatal_error for one in self.replicas if one.fatal_error is not None), None)

    @property
    def state(self) -> str:
        """ "loading", "ready", or "failed"."""
        if self.error is not None:
            return "failed"
        if self.backend is None:
            return "loading"
        return "ready" if self.fatal_error is None else "failed"

    def load(self) -> None:
        """Compile or open the model, and get ready to answer; an error is kept."""
        from ..base.progress import watching

        try:
            with watching(self._note_step):
                self.replicas = load_replicas(self)
            self.loaded_s = time.perf_counter() - self.started_s
            logger.info("The model %s is ready after %.1f s.", self.spec.name, self.loaded_s)
        except Exception as error:  # noqa: BLE001  # /health reports it; other models are served
            self.error = error

    def log_error(self) -> None:
        """Log why the model cannot be served."""
        traceback = None if isinstance(self.error, NeuronError) else self.error
        logger.error("%s cannot be served: %s", self.spec.name, self.error, exc_info=traceback)

    def _note_step(self, progress: Progress) -> None:
        self.compiling = progress

    def progress(self) -> dict[str, Any]:
        """Return how far the model is, for `/health`."""
        seconds = self.loaded_s if self.loaded_s is not None else time.perf_counter() - self.started_s
        report: dict[str, Any] = {"state": self.state, "seconds": round(seconds, 1)}
        if self.error is not None:
            report["error"] = str(self.error)
        if self.backend is None and self.error is None and self.compiling is not None:
            steps = {"done": self.compiling.num_done, "known": self.compiling.num_steps}
            report["export"] = {"step": self.compiling.step, **steps}
        if self.backend is not None:
            report |= {"replicas": len(self.replicas), **self._host_code(self.backend)}
        return report

    def _host_code(self, first: Replica) -> dict[str, Any]:
        """Return which host code new requests run on, how far better code is, and how many requests end on older."""
        prepared = first.model.prepared
        if prepared.host is None:
            return {}
        report = {"serves": prepared.loaded.executor.levels}
        if prepared.host.compiling is not None:
            report |= {"compiled": prepared.host.compiling.num_done, "blocks": len(prepared.host.compiling.jobs)}
        if self.generators:
            report["requests_on_earlier"] = sum(one.manager.engine.num_on_earlier_code for one in self.generators)
        return {"host_code": report}

    def note_finished(self, facts: Finished) -> None:
        """Count a request that is over."""
        self.on_finished(self.spec.name, facts)


def load_replicas(model: ServedModel) -> list[Replica]:
    """Return what answers the requests of a model, by the model's task."""
    from ..options.configuration import is_export
    from ..options.option import source_options
    from ..sources import find_folder, is_exported_pipeline, load_source

    options = model.spec.options
    folder = find_folder(model.spec.source, **source_options(options))
    config = load_source(folder, trust_remote_code=options.get("trust_remote_code", False)).config
    model.runner = choose_runner(folder, config, options.get("task", "auto"))
    is_exported = is_export(folder) or is_exported_pipeline(folder)
    replicas: list[Replica] = []
    try:
        for _ in range(model.num_replicas):
            replicas.append(model.runner.value.load(model, config, is_exported))
            _require_own_cores(model, replicas)
    except BaseException:
        for replica in replicas:
            replica.close()
        raise
    return replicas


def _require_own_cores(model: ServedModel, replicas: Sequence[Replica]) -> None:
    """Check that the last replica shares no core with those before it: a claim falls back to cores of this process."""
    *before, last = ({ledger.core_id for ledger in replica.ledgers} for replica in replicas)
    if shared := sorted(last & set().union(*before)):
        message = (
            f"{model.num_replicas} replicas of {model.spec.name} need {counted(len(last), 'core')} each, "
            f"but there are no more free ones after {len(before)} of them."
        )
        hint = "Serve fewer replicas, or simulate a larger instance (OPTIMUM_NEURON_INSTANCE)."
        details = {"num_replicas": model.num_replicas, "num_cores": len(last), "shared": shared}
        raise CoreBusyError(message, hint=hint, **details)


class Registry:
    """Models by name, adapters too."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.models = list(models)
        self.on_all_failed: Callable[[], None] = lambda: self.models[-1].log_error()
        """Called when no model can be loaded, in the thread that tried, to report the last; others are in the log."""
        self._thread = threading.Thread(target=self._load, name="loading", daemon=True)
        self._has_frozen = False

    def start(self) -> None:
        """Load the models, one after the other, in a thread."""
        self._thread.start()

    def _load(self) -> None:
        for model in self.models:
            model.load()
            if model.error is not None and not self._errors():
                model.log_error()
        if self._errors():
            self.on_all_failed()
        elif not gc.get_freeze_count():
            # A full collection of all that models and libraries hold stops every request for a quarter of a second.
            gc.collect()
            gc.freeze()
            self._has_frozen = True

    def _errors(self) -> list[Exception]:
        """Why the models cannot be loaded; empty if there is one that was, or that may be."""
        errors = [model.error for model in self.models if model.error is not None]
        return errors if len(errors) == len(self.models) else []

    def require_any(self) -> None:
        """Check that a model was loaded, or was not yet tried."""
        if errors := self._errors():
            raise errors[-1]

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every model is loaded or failed."""
        self._thread.join(timeout_s)

    def names(self) -> list[tuple[str, ServedModel, str | None]]:
        """Return names with their models and adapters."""
        base = [(model.spec.name, model, None) for model in self.models]
        return base + [(name, model, name) for model in self.models for name in model.spec.adapters]

    def find(self, name: str | None, kind: type | tuple[type, ...], endpoint: str) -> tuple[str, Any, str | None]:
        """Return the model of a request: its name, what answers, and the adapter."""
        name, model, adapter = self._named(name)
        if model.state == "failed":
            message = f"The model {name!r} cannot be served: {model.error or model.fatal_error}"
            raise RequestError(message, status=503, code="model_failed", param="model")
        if model.backend is None:
            seconds = time.perf_counter() - model.started_s
            message = f"The model {name!r} is being compiled and loaded since {seconds:.0f} s."
            raise RequestError(message, hint="Try again later.", status=503, code="model_loading", param="model")
        if not isinstance(model.backend, kind):
            assert model.runner is not None, "a loaded model has one"
            message = f"The model {name!r} does not serve {endpoint}: its kind is {model.runner.value}."
            raise RequestError(message, hint="See /v1/models.", status=400, code="model_not_supported", param="model")
        return name, model.least_busy(), adapter

    def _named(self, name: str | None) -> tuple[str, ServedModel, str | None]:
        rows = {row[0]: row for row in self.names()}
        return rows[require_name(name, list(rows), default=next(iter(rows)) if len(self.models) == 1 else None)]

    def close(self, timeout_s: float | None = None) -> None:
        """Answer what runs, at most for `timeout_s` seconds, and end."""
        for model in self.models:
            for replica in model.replicas:
                replica.close(timeout_s)
        if self._has_frozen:
            gc.unfreeze()


def require_name(name: str | None, names: Sequence[str], *, default: str | None) -> str:
    """Return the name of a model if it is served, or `default` for None."""
    hint = f"Send one of {', '.join(names)}."
    if name is None and default is not None:
        return default
    if name is None:
        raise RequestError("The field 'model' is missing.", hint=hint, status=400, param="model")
    if name not in names:
        message = f"The model {name!r} does not exist{nearest(name, names) or '.'}"
        raise RequestError(message, hint=hint, status=404, code="model_not_found", param="model")
    return name
