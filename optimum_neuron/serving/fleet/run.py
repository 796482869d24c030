"""Serves a fleet on a Ray cluster until a signal: on one that runs, or on a local one.

serve_on_ray(fleet, on_listening=print)
"""

from __future__ import annotations

import importlib.util
import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

from ...base.core import Choice
from ...errors import ConfigError, ModelError
from ...exporters import no_ray_cluster
from ...hardware import resolve_instance
from .application import build_application
from .config import FleetConfig

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 128 * 2**20
"""Ray's object store of a local cluster: requests and answers are small."""


def require_ray() -> None:
    """Check that Ray Serve is installed."""
    if importlib.util.find_spec("ray") is None:
        hint = "Install it with: pip install 'optimum-neuron-sim[ray,serve]'"
        raise ConfigError("A fleet needs the package ray.", hint=hint, packages=["ray"])


def connect(fleet: FleetConfig, address: str | None = None) -> Choice[str]:
    """Connect to a Ray cluster; return its address, and why it is that one.

    Args:
        address: of a cluster; None for the one of this machine (RAY_ADDRESS), or a new local one.
    """
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    try:
        ray.init(address=address or "auto", **quiet)
        reason = f"ray_address={address}" if address else "a cluster runs on this machine"
        return Choice(value=address or "auto", reason=reason)
    except (ConnectionError, ValueError) as error:
        if address is not None:
            raise no_ray_cluster(address, error) from error
    num_cores = _cores_of_machine(fleet)
    ray.init(
        address="local",
        num_cpus=int(sum(_most_replicas(group) * group.num_cpus for group in fleet.groups)) + 2,
        resources={"neuron_cores": num_cores},
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        **quiet,
    )
    return Choice(value="local", reason=f"no cluster runs on this machine: a new one with {num_cores} NeuronCores")


def _cores_of_machine(fleet: FleetConfig) -> int:
    """Return the NeuronCores of this machine as a cluster."""
    specs = [spec for group in fleet.groups for spec in group.models]
    instance = resolve_instance(next((spec.options.get("instance_type") for spec in specs), None)).value
    needed = sum(_most_replicas(group) * group.cores_per_replica for group in fleet.groups)
    if needed > instance.num_logical_cores():
        message = f"The replicas need {needed} NeuronCores; {instance.name} has {instance.num_logical_cores()}."
        hint = "Pass fewer replicas, a larger --instance_type, or the --ray_address of a cluster."
        raise ConfigError(message, hint=hint, option="num_replicas", needed=needed, instance=instance.name)
    return instance.num_logical_cores()


def _most_replicas(group: Any) -> int:
    return int((group.autoscaling_config or {}).get("max_replicas", group.num_replicas))


def serve_on_ray(
    fleet: FleetConfig,
    *,
    address: str | None = None,
    on_listening: Callable[[str, Choice[str]], None] = lambda url, cluster: None,
) -> None:
    """Serve until SIGTERM or SIGINT; then the application is removed, and a local cluster ends."""
    require_ray()
    import ray
    from ray import serve

    cluster = connect(fleet, address)
    ended = threading.Event()
    previous = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        serve.start(
            proxy_location="HeadOnly" if cluster.value == "local" else "EveryNode",
            http_options={"host": fleet.server.host, "port": fleet.server.port},
        )
        deploy(fleet)
        host = "127.0.0.1" if fleet.server.host == "0.0.0.0" else fleet.server.host
        on_listening(f"http://{host}:{fleet.server.port}{fleet.route_prefix.rstrip('/')}", cluster)
        ended.wait()
        serve.delete(fleet.application)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if cluster.value == "local":
            serve.shutdown()
        ray.shutdown()


def deploy(fleet: FleetConfig) -> None:
    """Put a fleet on the cluster of this process and wait for its replicas; a running one is updated one by one."""
    from ray import serve

    application = build_application(fleet)
    try:
        serve.run(application, name=fleet.application, route_prefix=fleet.route_prefix)
    except RuntimeError as error:
        status = serve.status().applications.get(fleet.application)
        reports = {} if status is None else {name: one.message for name, one in status.deployments.items()}
        failed = {name: _last_line(message) for name, message in reports.items() if message}
        lines = "\n".join(f"  {name}: {message}" for name, message in failed.items()) or f"  {error}"
        message, hint = f"The fleet cannot be served:\n{lines}", "Change the models or their options."
        raise ModelError(message, hint=hint, deployments=failed) from error


def _last_line(message: str) -> str:
    """The reason at the end of a traceback that Ray reports."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""
