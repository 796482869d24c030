"""`python -m optimum.exporters.neuron`: the command `optimum-cli export neuron`, and `main_export` for imports."""

import sys

from optimum.commands.optimum_cli import main as optimum_cli
from optimum.exporters.neuron._export import main_export

__all__ = ["main", "main_export"]


def main() -> None:
    """Export with the arguments of `optimum-cli export neuron`."""
    sys.argv[1:1] = ["export", "neuron"]
    optimum_cli()


if __name__ == "__main__":
    main()
