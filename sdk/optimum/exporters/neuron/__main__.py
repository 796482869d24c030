"""`python -m optimum.exporters.neuron`: the command `optimum-cli export neuron`, and functions for imports."""

import sys
from typing import Any

from optimum.commands.optimum_cli import main as optimum_cli
from optimum.exporters.neuron._export import main_export

__all__ = ["main", "main_export"]


def __getattr__(name: str) -> Any:
    if name != "get_submodels_and_neuron_configs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from optimum.exporters.neuron._convert import get_submodels_and_neuron_configs  # it imports torch

    return get_submodels_and_neuron_configs


def main() -> None:
    """Export with the arguments of `optimum-cli export neuron`."""
    sys.argv[1:1] = ["export", "neuron"]
    optimum_cli()


if __name__ == "__main__":
    main()
