"""Ray Serve's application of a fleet: an ingress that speaks HTTP, and a deployment for each group of replicas.

    serve.run(build_application(fleet), name=fleet.application, route_prefix=fleet.route_prefix)

`app` makes it from the `args` of a configuration file, for `serve deploy` and KubeRay.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...base import env
from ...errors import ConfigError
from ...options.option import absolute_source, absolute_url
from ..options import ModelSpec
from .config import FleetConfig, ReplicaGroup, parse_fleet
from .replica import Replica, multiplexed_replica

TARGET_SHARE = 0.5
"""Requests of a replica that autoscaling aims at, as a share of those that it takes at once: a full batch."""


def app(args: dict[str, Any]) -> Any:
    """Return the application of a configuration file, whose `import_path` names this function."""
    return build_application(parse_fleet(args))


def build_application(fleet: FleetConfig) -> Any:
    """Return Ray Serve's application of a fleet."""
    from ray import serve

    def make_ingress() -> Any:
        from ..app import make_app
        from .ingress import Fleet

        name, server = serve.get_replica_context().app_name, fleet.server
        if (key := env.api_key()) and key not in server.api_key:
            server = dataclasses.replace(server, api_key=(*server.api_key, key))
        return make_app(Fleet(dataclasses.replace(fleet, application=name, server=server)))

    ingress = serve.deployment(
        name="ingress",
        num_replicas=fleet.num_ingress_replicas,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=10_000,
        graceful_shutdown_timeout_s=fleet.server.drain_timeout_s,
    )(serve.ingress(make_ingress)())
    return ingress.bind(*[_deployment(group, fleet) for group in fleet.groups])


def _deployment(group: ReplicaGroup, fleet: FleetConfig) -> Any:
    """Return the deployment of a group, with its arguments."""
    from ray import serve

    kind: type[Replica] = multiplexed_replica(group.max_models_per_replica or 1) if group.is_multiplexed else Replica
    variables = dict(group.env)
    types = {spec.options["instance_type"] for spec in group.models if "instance_type" in spec.options}
    if len(types) == 1:
        variables.setdefault("OPTIMUM_NEURON_INSTANCE", *types)
    if fleet.cache_url is not None:
        variables.setdefault("NEURON_COMPILE_CACHE_URL", absolute_url(fleet.cache_url))
    number: dict[str, Any] = {"num_replicas": group.num_replicas}
    if group.autoscaling_config is not None:
        target = {"target_ongoing_requests": max(TARGET_SHARE * group.ongoing_requests, 1)}
        number = {"autoscaling_config": target | group.autoscaling_config}
    try:
        deployment = serve.deployment(
            name=group.name,
            ray_actor_options={
                "num_cpus": group.num_cpus,
                "resources": {"neuron_cores": group.cores_per_replica},
                "runtime_env": {"env_vars": variables} if variables else {},
            },
            max_ongoing_requests=group.ongoing_requests,
            max_queued_requests=fleet.server.max_queue_size,
            graceful_shutdown_timeout_s=fleet.server.drain_timeout_s,
            max_constructor_retry_count=1,
            **number,
        )(kind)
    except (TypeError, ValueError) as error:
        message = f"Ray Serve rejects the options of {group.name}: {' '.join(str(error).split())[:300]}"
        raise ConfigError(message, hint="See Ray Serve's documentation.", option=group.name) from error
    # A later request may go to another replica, so none of them keeps responses.
    group = dataclasses.replace(group, models=tuple(map(_elsewhere, group.models)))
    return deployment.bind(group, dataclasses.replace(fleet.server, response_store_bytes=0))


def _elsewhere(spec: ModelSpec) -> ModelSpec:
    """The model for a replica, which runs in another folder."""
    adapters = {name: absolute_source(folder) for name, folder in spec.adapters.items()}
    return dataclasses.replace(spec, source=absolute_source(spec.source), adapters=adapters)
