"""What a fleet serves: groups of equal replicas, their models, and the limits of the server.

    fleet = read_fleet("serve.yaml")
    fleet.groups[0].num_cores

A file has the form of Ray Serve's configuration, so that `serve deploy` and KubeRay take it too; its `args` are read
here. It does not import Ray.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, nearest
from ..options import ModelSpec, ServeOptions, cores_of

IMPORT_PATH = "optimum_neuron.serving.fleet:app"
"""Ray Serve's name for the function that makes the application."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """Equal replicas, a Ray Serve deployment; each is a process with simulated NeuronCores."""

    name: str
    """Name of the deployment in Ray."""
    models: tuple[ModelSpec, ...]
    """Models that a replica serves."""
    max_models_per_replica: int | None = None
    """Models that a replica has loaded at once; a further one replaces the least recently used. None: all of them."""
    num_replicas: int = 1
    """Replicas, without autoscaling."""
    autoscaling_config: dict[str, Any] | None = None
    """Ray Serve's autoscaling by the number of requests that run or wait, such as `max_replicas`."""
    num_cores: int | None = None
    """NeuronCores of a replica, Ray's resource `neuron_cores`; None for those that its loaded models take."""
    num_cpus: float = 1.0
    """Ray's CPUs of a replica, which also limit its threads."""
    max_ongoing_requests: int | None = None
    """Requests that a replica takes at once; others wait for any replica. None: two batches."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables of its processes."""

    def __post_init__(self) -> None:
        for name in ("max_models_per_replica", "num_replicas", "num_cores", "max_ongoing_requests"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                message = f"{name}={value!r} of {self.name} is not a whole number above 0."
                raise ConfigError(message, hint="Pass one.", option=name, value=value)
        if not self.models:
            raise ConfigError(f"{self.name} has no models.", hint="Give it one.", option="models", value=self.name)

    @property
    def is_multiplexed(self) -> bool:
        """Whether a replica loads models when they are first requested."""
        return self.max_models_per_replica is not None and self.max_models_per_replica < len(self.models)

    @property
    def cores_per_replica(self) -> int:
        """NeuronCores of a replica: the sum of its models' cores, or of its largest ones that are loaded at once."""
        if self.num_cores is not None:
            return self.num_cores
        counts = sorted((cores_of(spec) for spec in self.models), reverse=True)
        return sum(counts[: self.max_models_per_replica])

    @property
    def ongoing_requests(self) -> int:
        """Requests that a replica takes at once."""
        if self.max_ongoing_requests is not None:
            return self.max_ongoing_requests
        sizes = [spec.options.get("batch_size") or 8 for spec in self.models]
        return 2 * max(max(size) if isinstance(size, (list, tuple)) else size for size in sizes)

    @property
    def names(self) -> dict[str, ModelSpec]:
        """Models by the names in requests, adapters too."""
        return {name: spec for spec in self.models for name in (spec.name, *spec.adapters)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """All groups, and the server before them."""

    groups: tuple[ReplicaGroup, ...]
    server: ServeOptions = dataclasses.field(default_factory=ServeOptions)
    """Address and limits; `max_queue_size` is for each group, at each proxy."""
    cache_url: str | None = None
    """Compile cache of all replicas, a folder or an fsspec URL; None: NEURON_COMPILE_CACHE_URL of each machine."""
    num_ingress_replicas: int = 1
    """Processes that read requests and send them to replicas."""
    application: str = "optimum-neuron"
    """Name of the application in Ray."""
    route_prefix: str = "/"
    """Path below which the server answers."""

    def __post_init__(self) -> None:
        if not self.groups:
            raise ConfigError("The fleet has no models.", hint="Give it one.", option="models", value=[])
        names = [name for group in self.groups for name in group.names]
        for what, every in {"models": names, "deployments": [group.name for group in self.groups]}.items():
            if twice := sorted({name for name in every if every.count(name) > 1}):
                message = f"Two {what} have the name {twice[0]!r}."
                raise ConfigError(message, hint="Give them different names.", option="name", value=twice[0])


def group_of(spec: ModelSpec, **options: Any) -> ReplicaGroup:
    """Return the replicas of one model, under its name."""
    return ReplicaGroup(name=spec.name.strip("./").replace("/", "-").replace("#", "-"), models=(spec,), **options)


def read_fleet(path: str | Path) -> FleetConfig:
    """Read a file with Ray Serve's configuration of one application."""
    data = _read_yaml(Path(path))
    applications = data.get("applications")
    if not isinstance(applications, list) or len(applications) != 1 or not isinstance(applications[0], dict):
        message = f"{path} has no list `applications` with one application."
        raise ConfigError(message, hint="See docs/fleet.md for an example.", option="applications", value=str(path))
    (application,) = applications
    if application.get("import_path") != IMPORT_PATH:
        message = f"{path} has the import_path {application.get('import_path')!r}."
        hint = f"Use {IMPORT_PATH}, or deploy the file with Ray's command `serve deploy`."
        raise ConfigError(message, hint=hint, option="import_path", value=application.get("import_path"))
    fleet = parse_fleet(application.get("args"))
    http = data.get("http_options") or {}
    address = {name: http[name] for name in ("host", "port") if name in http}
    named = {"application": "name", "route_prefix": "route_prefix"}
    return dataclasses.replace(
        fleet,
        server=dataclasses.replace(fleet.server, **address),
        **{field: application[name] for field, name in named.items() if name in application},
    )


def parse_fleet(args: object) -> FleetConfig:
    """Return the fleet that the `args` of an application describe.

    Example:
        ```python
        from optimum_neuron.serving.fleet import parse_fleet

        chat = {"source": "smollm2", "options": {"tensor_parallel_size": 2}, "num_replicas": 3}
        fleet = parse_fleet({"models": [chat]})
        assert fleet.groups[0].cores_per_replica == 2
        ```
    """
    fields = _fields(args, "the fleet", {"models", "server", "cache_url", "num_ingress_replicas"})
    server = _fields(fields.pop("server", {}), "server", _OF_SERVER)
    lists: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in server.items()}
    models = fields.pop("models", [])
    if not isinstance(models, list):
        raise ConfigError("`models` is no list.", hint="Pass a list.", option="models", value=str(models)[:80])
    return FleetConfig(groups=tuple(map(_group, models)), server=ServeOptions(**lists), **fields)


_ELSEWHERE = {"host", "port", "served_model_name", "lora_modules", "response_store_bytes", "max_connections"}
"""Options of a server that have other places in the file, or no meaning for a fleet."""
_OF_SERVER = {field.name for field in dataclasses.fields(ServeOptions)} - _ELSEWHERE
_OF_GROUP = {field.name for field in dataclasses.fields(ReplicaGroup)} - {"models"}
_OF_MODEL = {field.name for field in dataclasses.fields(ModelSpec)}


def _group(data: object) -> ReplicaGroup:
    """A model with its replicas, or a group of several `models`."""
    if isinstance(data, dict) and "models" in data:
        fields = _fields(data, "a group", {*_OF_GROUP, "models"})
        models = tuple(_model(_fields(one, "a model", _OF_MODEL)) for one in fields.pop("models"))
        name = fields.pop("name", None) or (models[0].name if models else "group")
        return ReplicaGroup(name=name, models=models, **fields)
    fields = _fields(data, "a model", _OF_GROUP | _OF_MODEL)
    spec = _model({name: fields.pop(name) for name in _OF_MODEL if name in fields})
    return group_of(spec, **fields)


def _model(fields: Mapping[str, Any]) -> ModelSpec:
    if not isinstance(fields.get("source"), str):
        message = f"A model has no source: {dict(fields)}"
        raise ConfigError(message, hint="Give it a folder or a Hub model ID.", option="source", value=None)
    return ModelSpec(**{"name": fields["source"], **fields})


def _fields(data: object, what: str, known: set[str]) -> dict[str, Any]:
    """Return the fields of a mapping, all known."""
    if not isinstance(data, Mapping):
        message = f"{what} is no mapping: {str(data)[:80]!r}"
        raise ConfigError(message, hint=f"Use {', '.join(sorted(known))}.", option=what, value=str(data)[:80])
    if unknown := [name for name in data if name not in known]:
        message = f"{what} has the unknown field {unknown[0]!r}{nearest(str(unknown[0]), known) or '.'}"
        hint = f"Use {', '.join(sorted(known))}."
        raise ConfigError(message, hint=hint, option=str(unknown[0]), value=data[unknown[0]])
    return dict(data)


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        message = f"{path} cannot be read: {' '.join(str(error).split())[:300]}"
        raise ConfigError(message, hint="Pass a YAML file.", option="config", value=str(path)) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is no mapping.", hint="Pass a YAML file.", option="config", value=str(path))
    return data
