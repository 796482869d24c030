"""A simulated core that belongs to one object and to no instance, for work that only looks at results.

An export compares the compiled model with the reference model and closes it: many may run at once, also while other
processes hold every core. A private core takes no lock, writes no file, has its own HBM ledger, and no tool lists it.

>>> from optimum_neuron.hardware import INSTANCES
>>> from optimum_neuron.runtime.private_core import PrivateCore
>>> core = PrivateCore(INSTANCES["inf2.xlarge"], model="bert")
>>> core.core_ids, core.hbm.available_bytes == 16 * 2**30 - 96 * 2**20
((), True)
"""

from __future__ import annotations

from ..base.core import Choice
from ..hardware import TARGETS, InstanceSpec
from .hbm import empty_ledger


class PrivateCore:
    """A core, or several, with the interface of `CoreClaim`: it holds no core of the instance."""

    def __init__(self, instance: InstanceSpec, *, model: str, num_cores: int = 1) -> None:
        self.instance, self.model = instance, model
        self.core_ids: tuple[int, ...] = ()
        """None of the instance's."""
        self.choice: Choice[tuple[int, ...]] = Choice(
            value=self.core_ids, reason="validation runs on a private core, so it waits for no process"
        )
        # The charge of the microcode lives as long as its ledger.
        self._ledgers = [empty_ledger(TARGETS[instance.family], core) for core in range(num_cores)]
        self.ledgers = tuple(ledger for ledger, _ in self._ledgers)
        """The ledger of each core; other models never charge it."""
        self.hbm = self.ledgers[0]
        """That of the first core."""
        self.held = True
        """Whether the core has not been released."""

    def release(self) -> None:
        """Give the core up; calling it again does nothing."""
        self.held = False

    def __repr__(self) -> str:
        return f"PrivateCore({self.model!r}, {self.instance.name}, {'held' if self.held else 'released'})"
