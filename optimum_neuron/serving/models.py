"""The models of a server: each loads in a thread, is listed meanwhile, and then answers.

It knows kinds of models only by their task: `KINDS` has the class that serves a task. It does not know HTTP.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import NeuronError, RequestError, nearest
from .generator import Finished, Generator
from .options import ModelSpec

logger = logging.getLogger(__name__)

DECODER_DEFAULTS = {"continuous_batching": True, "batch_size": 8}
"""Options of a decoder that is exported for serving, unless others are given."""


@dataclasses.dataclass(eq=False)
class ServedModel:
    """One model, and how far it is."""

    spec: ModelSpec
    max_queue_size: int
    on_finished: Callable[[str, Finished], None]
    backend: Any = None
    """What answers, once the model is loaded: a `Generator`, or another one by its task."""
    error: Exception | None = None
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))
    started_s: float = dataclasses.field(default_factory=time.perf_counter)
    loaded_s: float | None = None

    @property
    def state(self) -> str:
        """ "loading", "ready", or "failed"."""
        if self.error is not None:
            return "failed"
        if self.backend is None:
            return "loading"
        return "failed" if getattr(self.backend, "fatal_error", None) is not None else "ready"

    def load(self) -> None:
        """Compile or open the model, and get ready to answer; an error is kept."""
        try:
            self.backend = load_backend(self)
            self.loaded_s = time.perf_counter() - self.started_s
            logger.info("The model %s is ready after %.1f s.", self.spec.name, self.loaded_s)
        except Exception as error:  # noqa: BLE001  # /health reports it; other models are served
            self.error = error
            level = logging.ERROR
            logger.log(
                level, "%s cannot be served: %s", self.spec.name, error, exc_info=not isinstance(error, NeuronError)
            )

    def progress(self) -> dict[str, Any]:
        """Return how far the model is, for `/health`."""
        seconds = self.loaded_s if self.loaded_s is not None else time.perf_counter() - self.started_s
        report: dict[str, Any] = {"state": self.state, "seconds": round(seconds, 1)}
        if self.error is not None:
            report["error"] = str(self.error)
        host = None if self.backend is None else self.backend.model.prepared.host
        if host is not None and host.compiling is not None:
            report["host_code"] = {"compiled": host.compiling.num_done, "blocks": len(host.compiling.jobs)}
        return report


def load_backend(model: ServedModel) -> Any:
    """Return what answers the requests of a model, by the model's task."""
    from ..exporters import find_folder, find_task, infer_task, is_export, load_source, read_folder
    from ..options import source_options

    spec = model.spec
    folder = find_folder(spec.source, **source_options(spec.options))
    source = load_source(folder, trust_remote_code=spec.options.get("trust_remote_code", False))
    exported = read_folder(folder).config if is_export(folder) else None
    task = exported.task if exported is not None else infer_task(source.config, spec.options.get("task", "auto")).value
    kind = find_task(task, source.config.model_type)
    open_backend = BACKENDS.get(kind.name)
    if open_backend is None:
        message = f"{spec.source} is a model for {kind.name}, which the server has no endpoint for."
        raise RequestError(message, hint=f"Serve a model for {', '.join(BACKENDS)}.", status=404, task=kind.name)
    return open_backend(model, is_exported=exported is not None)


def _load_generator(model: ServedModel, *, is_exported: bool) -> Generator:
    from ..modeling import NeuronModelForCausalLM, load_preprocessor

    spec = model.spec
    adapters = {"max_loras": len(spec.adapters)} if spec.adapters else {}
    options = spec.options if is_exported else {**DECODER_DEFAULTS, **adapters, **spec.options}
    loaded = NeuronModelForCausalLM.from_pretrained(spec.source, export=not is_exported, **options)
    for name, folder in spec.adapters.items():
        loaded.load_adapter(folder, adapter_name=name)
    return Generator(
        loaded,
        load_preprocessor("AutoTokenizer", loaded.source_folder),
        max_queue_size=model.max_queue_size,
        on_finished=functools.partial(model.on_finished, spec.name),
    )


BACKENDS: dict[str, Callable[..., Any]] = {"text-generation": _load_generator}
"""Task to the function that loads what answers."""


class Registry:
    """Models by name, adapters too."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.models = list(models)
        self._thread = threading.Thread(target=self._load, name="loading", daemon=True)

    def start(self) -> None:
        """Load the models, one after the other, in a thread."""
        self._thread.start()

    def _load(self) -> None:
        for model in self.models:
            model.load()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every model is loaded or failed."""
        self._thread.join(timeout_s)

    def names(self) -> list[tuple[str, ServedModel, str | None]]:
        """Return names with their models and adapters."""
        base = [(model.spec.name, model, None) for model in self.models]
        return base + [(name, model, name) for model in self.models for name in model.spec.adapters]

    def find(self, name: str | None, kind: type, endpoint: str) -> tuple[str, Any, str | None]:
        """Return the model of a request: its name, what answers, and the adapter.

        Raises:
            RequestError: there is no such model, it is for another task, or it is not ready.
        """
        name, model, adapter = self._named(name)
        if model.state == "failed":
            message = f"The model {name!r} cannot be served: {model.error or model.backend.fatal_error}"
            raise RequestError(message, status=503, code="model_failed", param="model")
        if model.backend is None:
            seconds = time.perf_counter() - model.started_s
            message = f"The model {name!r} is being compiled and loaded since {seconds:.0f} s."
            raise RequestError(message, hint="Try again later.", status=503, code="model_loading", param="model")
        if not isinstance(model.backend, kind):
            message = f"The model {name!r} does not serve {endpoint}."
            raise RequestError(message, hint="See /v1/models.", status=400, code="model_not_supported", param="model")
        return name, model.backend, adapter

    def _named(self, name: str | None) -> tuple[str, ServedModel, str | None]:
        rows = {row[0]: row for row in self.names()}
        return rows[require_name(name, list(rows), default=next(iter(rows)) if len(self.models) == 1 else None)]

    def close(self, timeout_s: float | None = None) -> None:
        """Answer what runs, at most for `timeout_s` seconds, and end."""
        for model in self.models:
            if model.backend is not None:
                model.backend.close(timeout_s)


def require_name(name: str | None, names: Sequence[str], *, default: str | None) -> str:
    """Return the name of a model if it is served, or `default` for None.

    Raises:
        RequestError: there is no such model, or no name and no default.
    """
    hint = f"Send one of {', '.join(names)}."
    if name is None and default is not None:
        return default
    if name is None:
        raise RequestError("The field 'model' is missing.", hint=hint, status=400, param="model")
    if name not in names:
        message = f"The model {name!r} does not exist{nearest(name, names) or '.'}"
        raise RequestError(message, hint=hint, status=404, code="model_not_found", param="model")
    return name
