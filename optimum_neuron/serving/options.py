"""Options of a server: keywords in Python, flags of `optimum-cli neuron serve`."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
from pathlib import Path, PurePath
from typing import Any, ClassVar

from ..base.wording import counted
from ..errors import ConfigError
from ..hardware import resolve_instance
from ..options.configuration import DEGREES
from ..options.option import HasOptions, option
from ..runtime import num_usable


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(HasOptions):
    """Where a server listens, and its limits."""

    group: ClassVar[str] = "server"
    """Title on the command line."""

    host: str = option("127.0.0.1", help="address to listen on; 0.0.0.0 for all (default: 127.0.0.1)")
    """Address to listen on."""
    port: int = option(8000, help="port to listen on; 0 for a free one (default: 8000)", allows_zero=True)
    """Port to listen on."""
    served_model_name: tuple[str, ...] = option((), help="names of the models in requests, in their order")
    """Names of the models in requests; empty: as they were given."""
    lora_modules: tuple[str, ...] = option((), help="LoRA adapters of the first model: name=folder,name=folder")
    """Adapters of the first model, each a model of its own in requests."""
    api_key: tuple[str, ...] = option((), help="keys that requests must have one of (also OPTIMUM_NEURON_API_KEY)")
    """Keys, one of which a request must have."""
    max_queue_size: int = option(256, help="requests of a model that may wait; more get status 429 (default: 256)")
    """Requests of a model that may wait."""
    max_body_bytes: int = option(32 * 2**20, help="largest body of a request (default: 33554432)")
    """Largest body of a request."""
    max_connections: int = option(1000, help="connections at once; more get status 503 (default: 1000)")
    """Connections at once."""
    response_store_bytes: int = option(
        64 * 2**20,
        help="memory for responses that /v1/responses keeps; 0 keeps none (default: 67108864)",
        allows_zero=True,
    )
    """Memory for responses that `/v1/responses` keeps; the oldest are forgotten first."""
    request_timeout_s: int = option(600, help="seconds until a request fails (default: 600)")
    """Longest time of a request."""
    drain_timeout_s: int = option(
        30, help="seconds that running requests get after SIGTERM (default: 30)", allows_zero=True
    )
    """Time of running requests after SIGTERM."""
    allowed_origins: tuple[str, ...] = option((), help="web origins that may send requests (CORS)")
    """Web origins whose pages may send requests."""

    def __post_init__(self) -> None:
        limits = {
            "max_queue_size": (1, math.inf),
            "max_body_bytes": (1, math.inf),
            "max_connections": (1, math.inf),
            "response_store_bytes": (0, math.inf),
            "request_timeout_s": (1, math.inf),
            "drain_timeout_s": (0, math.inf),
            "port": (0, 65535),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if not least <= value <= most:
                limit = f"{least} or more" if most == math.inf else f"{least} to {most}"
                raise ConfigError(f"{name}={value} is out of range.", hint=f"Pass {limit}.", option=name, value=value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model of a server."""

    source: str
    """Folder, Hub model ID, or name in `optimum_neuron.checkpoints`."""
    name: str
    """Name in requests."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords of `from_pretrained`."""
    artifacts: Path | None = None
    """Folder of its compiled program, which is loaded if it is there, else written; None: none."""
    adapters: dict[str, str] = dataclasses.field(default_factory=dict)
    """Names and folders of its adapters."""
    tokenizer: str | None = None
    """Folder or Hub model ID of its tokenizer; None: its own."""
    chat_template: str | None = None
    """Template of chats in Jinja; None: the tokenizer's."""
    allow_block_sharing: bool = True
    """Let prompts share what they begin with."""
    draft: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Draft of all requests, with the keywords of `drafts.load_draft`; empty without one."""


def cores_of(spec: ModelSpec) -> int:
    """Return the NeuronCores that a model takes, from the options of its export."""
    return math.prod(spec.options.get(degree) or 1 for degree in DEGREES)


def require_cores(spec: ModelSpec, num_replicas: int) -> None:
    """Check that this process may use enough cores for replicas of a model, before minutes are spent."""
    if num_replicas == 1:
        return
    instance = resolve_instance(spec.options.get("instance_type")).value
    needed, usable = num_replicas * cores_of(spec), num_usable(instance, os.environ)
    if needed > usable:
        message = f"{num_replicas} replicas of {spec.name} need {needed} NeuronCores, but this process has {usable}."
        hint = "Serve fewer replicas, or simulate a larger instance (OPTIMUM_NEURON_INSTANCE)."
        details = {"option": "num_replicas", "value": num_replicas, "needed": needed, "usable": usable}
        raise ConfigError(message, hint=hint, **details)


def require_packages(*more: str) -> None:
    """Check that packages of the extra `serve` are installed: those of every server, and `more` for some models."""
    names = ("fastapi", "prometheus_client", "uvicorn", *more)
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        hint = "Install it with: pip install 'optimum-neuron-sim[serve]'"
        raise ConfigError(f"The server needs the package {missing[0]}.", hint=hint, packages=missing)


def model_specs(sources: tuple[str, ...], options: ServeOptions, compile_options: dict[str, Any]) -> list[ModelSpec]:
    """Return the models of a server."""
    names = options.served_model_name or tuple(
        PurePath(source).name if _is_path(source) else source for source in sources
    )
    if len(names) != len(sources):
        message = f"{counted(len(sources), 'model')} cannot have {counted(len(names), 'name')}."
        raise ConfigError(message, hint="Pass one name for each.", option="served_model_name", value=list(names))
    adapters = dict(_adapter(text) for text in options.lora_modules)
    every = [*names, *adapters]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        message = f"Two models have the name {twice[0]!r}."
        raise ConfigError(
            message, hint="Pass other names with served_model_name.", option="served_model_name", value=every
        )
    return [
        ModelSpec(source=source, name=name, options=compile_options, adapters=adapters if index == 0 else {})
        for index, (source, name) in enumerate(zip(sources, names, strict=True))
    ]


def _is_path(source: str) -> bool:
    return source.startswith((".", "/", "~"))


def _adapter(text: str) -> tuple[str, str]:
    name, separator, folder = text.partition("=")
    if not (name and separator and folder):
        raise ConfigError(f"{text!r} is no adapter.", hint="Pass name=folder.", option="lora_modules", value=text)
    return name, folder
