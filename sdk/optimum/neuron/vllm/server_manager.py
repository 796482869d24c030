"""`optimum.neuron.vllm.server_manager`: several servers on one machine, each with cores of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from optimum.neuron._log import logger

from optimum_neuron.base import env
from optimum_neuron.errors import ConfigError
from optimum_neuron.runtime import ranges

_POLL_S = 1.0
_SHUTDOWN_S = 10.0


class VLLMServerManager:
    """Starts one server for each port, watches them, and stops them.

    The servers are `optimum-cli neuron serve`, which takes the arguments of vLLM's server that have a meaning here.

    Args:
        ports: a port for each server, on 127.0.0.1.
        tp_size: cores of each server.
        vllm_args: further arguments of every server, such as `["--model", "smollm2"]`.
    """

    def __init__(self, ports: Sequence[int], tp_size: int, vllm_args: Sequence[str]) -> None:
        self.ports = list(ports)
        self.server_count = len(self.ports)
        self.tp_size = tp_size
        self.vllm_args = list(vllm_args)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()

    @staticmethod
    def _resolve_physical_cores() -> list[int] | None:
        """The cores in NEURON_RT_VISIBLE_CORES; None: it is not set."""
        visible = env.visible_cores()
        return None if visible is None else list(visible)

    def _core_range(self, rank: int) -> str:
        """The cores of a server, as NEURON_RT_VISIBLE_CORES writes them.

        Raises:
            ConfigError: there are not enough.
        """
        first, last = rank * self.tp_size, (rank + 1) * self.tp_size
        visible = self._resolve_physical_cores()
        cores = list(range(first, last)) if visible is None else visible[first:last]
        if len(cores) < self.tp_size:
            raise ConfigError(
                f"Server {rank} needs {self.tp_size} cores, but only {len(cores)} are available to it in "
                f"NEURON_RT_VISIBLE_CORES={ranges(visible or ())}.",
                hint="Name more cores, or start fewer servers.",
                rank=rank,
                num_cores=self.tp_size,
                available=cores,
            )
        return ranges(cores)

    def start(self) -> None:
        """Start the servers.

        Raises:
            ConfigError: there are not enough cores.
        """
        cores = [self._core_range(rank) for rank in range(self.server_count)]
        for port, visible in zip(self.ports, cores, strict=True):
            command = [sys.executable, "-m", "optimum.commands.optimum_cli", "neuron", "serve"]
            command += ["--host", "127.0.0.1", "--port", str(port), *self.vllm_args]
            logger.info("A server starts at port %d on the cores %s.", port, visible)
            self._processes.append(subprocess.Popen(command, env={**os.environ, "NEURON_RT_VISIBLE_CORES": visible}))

    def monitor(self) -> int | None:
        """Wait until a server ends, and return its exit status; None: `shutdown` was called."""
        while not self._stop.is_set():
            for process in self._processes:
                if (status := process.poll()) is not None:
                    logger.warning("The server with process ID %d ended with status %d.", process.pid, status)
                    return status
            self._stop.wait(_POLL_S)
        return None

    def shutdown(self) -> None:
        """Stop the servers: they get 10 seconds together, then they are killed."""
        self._stop.set()
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _SHUTDOWN_S
        for process in running:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("The server with process ID %d does not stop, and is killed.", process.pid)
                process.kill()
                process.wait()
        self._processes.clear()
