"""What this package replaces in Lightning, under both of its package names."""

from __future__ import annotations

from .contract import Patch

_TRAINER, _FABRIC = "trainer.connectors.accelerator_connector", "connector"
CONNECTORS = {
    f"lightning.pytorch.{_TRAINER}": "_AcceleratorConnector",
    f"pytorch_lightning.{_TRAINER}": "_AcceleratorConnector",
    f"lightning.fabric.{_FABRIC}": "_Connector",
    f"lightning_fabric.{_FABRIC}": "_Connector",
}
"""Modules that choose accelerator, strategy, and precision, with the class that does."""

STRATEGY = {
    module: Patch(
        target=f"{module}.{connector}._choose_strategy",
        why="Lightning chooses the strategy of an unknown accelerator as on the CPU.",
    )
    for module, connector in CONNECTORS.items()
}
PRECISION = {
    module: Patch(
        target=f"{module}.{connector}._check_and_init_precision",
        why="Mixed precision is CUDA's unless the accelerator is on Lightning's list.",
    )
    for module, connector in CONNECTORS.items()
}
ROWS = (*STRATEGY.values(), *PRECISION.values())


def package_of(module: str) -> str:
    """Return the package of Lightning that a module of `CONNECTORS` is in.

    >>> package_of("lightning.fabric.connector")
    'lightning.fabric'
    """
    return module.removesuffix(f".{_TRAINER}").removesuffix(f".{_FABRIC}")
