"""A Ray cluster of two machines, played by processes of this one, each with two simulated NeuronCores of its own."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import OPTIONS

collect_ignore_glob = ["test_ray_*.py"] if importlib.util.find_spec("ray") is None else []
"""Ray is in the extra `ray`, which CI does not install: a cluster takes half a minute to start."""

NUM_MACHINES, CORES_OF_MACHINE = 2, 2
OBJECT_STORE_BYTES = 80 * 2**20


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory, environment: None) -> Iterator[Any]:
    """The cluster; this process is connected to it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **common})
    try:
        for _ in range(NUM_MACHINES):
            home = tmp_path_factory.mktemp("machine")
            cluster.add_node(
                num_cpus=4,
                resources={"neuron_cores": CORES_OF_MACHINE},
                object_store_memory=OBJECT_STORE_BYTES,
                env_vars={"OPTIMUM_NEURON_HOME": str(home), "OPTIMUM_NEURON_INSTANCE": "inf2.xlarge"},
            )
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="package")
def cache_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile cache that all machines share."""
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="package")
def serve(cluster: Any) -> Iterator[Any]:
    """Ray Serve with its HTTP proxy; `address` is that of the proxy."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    serve.address = f"http://127.0.0.1:{port}"
    yield serve
    serve.shutdown()


def fleet_args(chat_checkpoint: Path, cache_url: str, **group: Any) -> dict[str, Any]:
    """Return the arguments of a fleet with two replicas of the tiny chat model."""
    model = {"source": str(chat_checkpoint), "name": "chat", "options": OPTIONS, "num_replicas": 2, **group}
    return {"models": [model], "cache_url": cache_url, "server": {"drain_timeout_s": 10}}


def wait_until(is_done: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)
