"""`optimum.commands.neuron.serve`: the command that serves models."""

from __future__ import annotations

from optimum_neuron.cli import ServeCommand
from optimum_neuron.errors import ConfigError

__all__ = ["ServeCommand"]

_LAST_PORT = 65535


def _allocate_internal_ports(user_port: int, count: int) -> list[int]:
    """Ports for servers behind the one that users see: those right after it.

    Raises:
        ConfigError: there are no such ports.
    """
    ports = list(range(user_port + 1, user_port + 1 + count))
    if ports[-1] > _LAST_PORT:
        raise ConfigError(
            f"The ports {ports[0]} to {ports[-1]} of {count} servers behind port {user_port} exceed the valid range, "
            f"which ends at {_LAST_PORT}.",
            hint="Choose a lower port.",
            port=user_port,
            count=count,
        )
    return ports
