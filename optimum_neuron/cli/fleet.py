"""`optimum-cli neuron serve --ray`: replicas on a Ray cluster in place of one process.

The work is `optimum_neuron.serving.fleet`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..base import env
from ..errors import ConfigError
from .arguments import options_from, positive_int
from .output import Out

if TYPE_CHECKING:
    from ..base.core import Choice
    from ..serving import ModelSpec, ServeOptions
    from ..serving.fleet import FleetConfig

FLEET_OPTIONS = ("ray", "ray_address", "max_replicas")
"""Arguments that only a fleet has."""


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a fleet."""
    group = parser.add_argument_group("fleet on Ray")
    group.add_argument("--ray", action="store_true", help="serve replicas on a Ray cluster")
    group.add_argument(
        "--ray_address",
        metavar="ADDRESS",
        help="Ray cluster, with --ray (default: one on this machine, or a new local one)",
    )
    group.add_argument(
        "--num_replicas",
        type=positive_int,
        metavar="N",
        help="replicas of each model, on separate cores (default: 1; with --simulate, a full instance)",
    )
    group.add_argument(
        "--max_replicas",
        type=positive_int,
        metavar="N",
        help="with --ray, replicas up to which Ray adds some while requests wait (default: no autoscaling)",
    )


def is_fleet_file(models: list[str]) -> bool:
    """Return whether the only model is a configuration file of a fleet."""
    return len(models) == 1 and PurePath(models[0]).suffix in (".yaml", ".yml")


def reject_fleet_options(args: argparse.Namespace) -> None:
    """Check that no option of a fleet is given for a server without Ray."""
    if given := list(options_from(args, *FLEET_OPTIONS)):
        message = f"{', '.join(given)} has no effect without --ray."
        raise ConfigError(message, hint="Add --ray, or remove it.", options=given)


def run_fleet(args: argparse.Namespace, out: Out, specs: list[ModelSpec], options: ServeOptions) -> None:
    """Serve models with equal numbers of replicas."""
    from ..serving.fleet import FleetConfig, group_of

    reasons = {
        "response_store_bytes": "a later request may reach another replica",
        "max_connections": "Ray accepts the connections",
    }
    for option, reason in reasons.items():
        if getattr(args, option) is not None:
            raise ConfigError(f"{option} has no effect with --ray: {reason}.", hint="Remove it.", option=option)
    number: dict[str, Any] = {"num_replicas": args.num_replicas or 1}
    if args.max_replicas is not None:
        number["autoscaling_config"] = {"min_replicas": number["num_replicas"], "max_replicas": args.max_replicas}
    cache_url = env.given().get("NEURON_COMPILE_CACHE_URL")
    groups = tuple(group_of(spec, **number) for spec in specs)
    _serve(out, FleetConfig(groups=groups, server=options, cache_url=cache_url), args.ray_address)


def run_fleet_file(args: argparse.Namespace, out: Out) -> None:
    """Serve the models of a configuration file."""
    from ..serving.fleet import read_fleet

    if given := list(options_from(args, without=("models", "ray", "ray_address", "host", "port"))):
        message = f"{', '.join(given)} has no effect with {args.models[0]}."
        raise ConfigError(message, hint="Write it into the file, or remove it.", options=given)
    fleet = read_fleet(args.models[0])
    server = dataclasses.replace(fleet.server, **options_from(args, "host", "port"))
    _serve(out, dataclasses.replace(fleet, server=server), args.ray_address)


def _serve(out: Out, fleet: FleetConfig, address: str | None) -> None:
    from ..serving.fleet import serve_on_ray

    def announce(url: str, cluster: Choice[str]) -> None:
        data = {
            "url": url,
            "cluster": cluster.to_dict(),
            "groups": [_facts(group) for group in fleet.groups],
        }
        out.result(data, human=_show, brief=url)
        out.hint(f"curl {url}/health")
        out.flush()

    serve_on_ray(fleet, address=address, on_listening=announce)


def _facts(group: Any) -> dict[str, Any]:
    most = (group.autoscaling_config or {}).get("max_replicas")
    return {
        "name": group.name,
        "models": list(group.names),
        "replicas": group.num_replicas if most is None else f"{group.num_replicas} to {most}",
        "neuron_cores": group.cores_per_replica,
    }


def _show(out: Out, data: Mapping[str, Any]) -> None:
    cluster = data["cluster"]
    out.text(f"serving at {data['url']} on the Ray cluster {cluster['value']} ({cluster['reason']})")
    out.table(data["groups"], title="replicas, each with simulated NeuronCores")
