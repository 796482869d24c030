"""A simulated core that belongs to one object and to no instance, for work that only looks at results.

An export compares the compiled model with the reference model and then closes it. It needs a core to run on, but no
core of the instance: many exports may run at once, also while other processes hold every core. A private core takes
no lock, writes no file, and has an HBM ledger of its own. `neuron-ls`, `neuron-top`, and `core_usage` do not list it.

>>> from optimum_neuron.hardware import INSTANCES
>>> from optimum_neuron.runtime.private_core import PrivateCore
>>> core = PrivateCore(INSTANCES["inf2.xlarge"], model="bert")
>>> core.core_ids, core.hbm.available_bytes == 16 * 2**30 - 96 * 2**20
((), True)
"""

from __future__ import annotations

from ..core import Choice
from ..hardware import TARGETS, InstanceSpec
from .hbm import HbmLedger, empty_ledger


class PrivateCore:
    """A core with the interface of `CoreClaim` that holds none of the instance's cores and conflicts with no process.

    Args:
        instance: the simulated instance; the core has the HBM of one of its cores.
        model: name of the model that runs on it, for messages.
        num_cores: how many there are, for a model that is divided among several.
    """

    def __init__(self, instance: InstanceSpec, *, model: str, num_cores: int = 1) -> None:
        self.instance = instance
        """The simulated instance."""
        self.model = model
        """Name of the model that the core is for."""
        self.choice: Choice[tuple[int, ...]] = Choice(
            value=(), reason="validation runs on a private core, so it waits for no process"
        )
        """No cores of the instance, and the reason."""
        # The charge of the microcode lives as long as its ledger.
        self._ledgers = [empty_ledger(TARGETS[instance.family], core) for core in range(num_cores)]
        self._released = False

    @property
    def core_ids(self) -> tuple[int, ...]:
        """Ids of cores of the instance that are held: an empty tuple."""
        return self.choice.value

    @property
    def ledgers(self) -> tuple[HbmLedger, ...]:
        """The ledger of each core's HBM; other models never charge them."""
        return tuple(ledger for ledger, _ in self._ledgers)

    @property
    def hbm(self) -> HbmLedger:
        """The ledger of the first core."""
        return self.ledgers[0]

    @property
    def held(self) -> bool:
        """Whether the core has not been released."""
        return not self._released

    def release(self) -> None:
        """Give the core up; calling it again does nothing."""
        self._released = True

    def __repr__(self) -> str:
        return f"PrivateCore({self.model!r}, {self.instance.name}, {'held' if self.held else 'released'})"
