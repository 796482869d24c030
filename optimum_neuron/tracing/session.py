"""A traced program in this process: its NEFF, its weights, and the replicas of it that are loaded on cores.

One session belongs to one `NeuronModel` of a ScriptModule and lives as long as it. Replicas take calls in turn. It does
not depend on TorchScript.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import warnings
from collections.abc import Callable, Sequence

import torch

from ..artifact import Artifact, BoundProgram
from ..base.core import Choice
from ..compiler import Graph
from ..compiler.lower import HostCode, Mode, lower
from ..errors import NeuronError, UnknownNameError, WeightsError
from ..hardware import TARGETS, InstanceSpec, resolve_instance
from ..runtime import LoadedProgram, closed_error, load_copies
from ..weights import StateDict
from .artifact import require_agreement
from .batches import run_in_batches
from .contexts import IS_DRY, REPLICA, Placement, starts_of


class _ProcessEnds(RuntimeError):
    """The main thread has ended, so background work stops."""


def _stop_at_exit(_: object) -> None:
    if not threading.main_thread().is_alive():
        raise _ProcessEnds


@dataclasses.dataclass
class Replica:
    """A program on a core."""

    loaded: LoadedProgram
    state: list[torch.Tensor]
    on_core: frozenset[int]
    """Addresses of the tensors that belong to the core."""
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def run(self, graph: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        # A state belongs to one call at a time; a program without one may be called from many threads.
        with self.turn if self.state else contextlib.nullcontext(), torch.no_grad():
            outputs = self.loaded.run(graph, inputs, self.state).values()
            taken = self.on_core.union(map(_address, inputs))
            return [tensor.clone() if _address(tensor) in taken else tensor for tensor in outputs]


class Session:
    """Loads and runs one traced program; `weights` are the separate tensors, in the order of its metadata.

    Raises:
        ArtifactError: the metadata does not agree with the program.
    """

    def __init__(self, artifact: Artifact, weights: Sequence[torch.Tensor], *, placement: Placement) -> None:
        require_agreement(artifact)
        self.artifact = artifact
        self.name = artifact.neff.document.name
        self.program = artifact.program
        self.metadata = artifact.metadata
        self.placement = placement
        self._weights = list(weights)
        self._host: HostCode | None = None
        self._replicas: list[Replica] = []
        self._next = 0
        self._lock = threading.RLock()
        self._closed = False

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The cores that replicas are on now; empty where nothing is loaded."""
        return tuple(core for replica in self._replicas for core in replica.loaded.claim.core_ids)

    @property
    def separate_weights(self) -> bool:
        """Whether weights are outside the NEFF, so that they can be replaced."""
        return self.artifact.inlined is None and bool(self.metadata["weights"])

    def require_target(self) -> InstanceSpec:
        """Return the simulated instance, which has the cores that the program was compiled for."""
        instance = resolve_instance().value
        self.artifact.require_target(TARGETS[instance.family])
        return instance

    def load(self, on_progress: Callable[[object], None] = lambda step: None) -> list[Replica]:
        """Load every replica that is not loaded; an exception from `on_progress` ends compiling and loading."""
        with self._lock:
            if self._closed:
                raise closed_error(self.name)
            # A forked child has no part in the claims of its parent.
            if not self._replicas or not all(replica.loaded.claim.held for replica in self._replicas):
                self._replicas = self._loaded(on_progress)
            return self._replicas

    def load_in_background(self) -> None:
        """Load in a separate thread. Calls wait for it, and so does the end of the process."""
        # Python ends daemon threads at exit by force. In C++ code of torch, that calls std::terminate.
        threading.Thread(target=self._try_load, name=f"load {self.name}", daemon=False).start()

    def wait_for_host_code(self, timeout_s: float | None) -> bool:
        """Load, and wait until compiled blocks are ready; return whether they are."""
        self.load()
        assert self._host is not None, "made when it was loaded"
        return self._host.wait(timeout_s)

    def unload(self) -> None:
        """Give cores and memory back; the next call loads again."""
        with self._lock:
            replicas, self._replicas = self._replicas, []
        for replica in replicas:
            replica.loaded.close()

    def close(self) -> None:
        """Release cores and memory permanently. Calling it again does nothing."""
        with self._lock:
            self._closed = True
            self.unload()

    def place(self, placement: Placement) -> None:
        """Unload, and load elsewhere with the next call."""
        with self._lock:
            self.unload()
            self.placement = placement

    def replace_weights(self, weights: Sequence[torch.Tensor]) -> None:
        """Use other tensors from the next call on; device-resident state is reset."""
        with self._lock:
            self.unload()
            self._weights = list(weights)

    def state_of(self, name: str, rank: int) -> torch.Tensor:
        """Return the state of a rank on its core. An in-place write to it takes effect with the next call.

        Raises:
            UnknownNameError: the program has no such state, or no result depends on that of the rank.
        """
        keys = list(map(_state_and_rank, self.artifact.host_program.states)) if self.program.states else []
        if (name, rank) not in keys:
            message = f"The program keeps no state {name!r} of rank {rank}."
            kept = ", ".join(f"{key} of rank {number}" for key, number in keys) or "none"
            raise UnknownNameError(message, hint=f"States that results depend on are {kept}.", key=name, rank=rank)
        return self.load()[0].state[keys.index((name, rank))]

    def run(self, inputs: Sequence[torch.Tensor], entry: int, *, batches: bool) -> list[torch.Tensor]:
        """Call an entry point by its number; with `batches`, the first dimension may have any size."""
        graph = self.program.graphs[self.metadata["entries"][entry]]
        if IS_DRY.get():
            specs = [self.program.value_spec(graph, value) for value in graph.outputs.values()]
            return [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs]
        if batches:
            return run_in_batches(self.program, graph, inputs, lambda chunk: self._run(graph, chunk))
        return self._run(graph, inputs)

    def _run(self, graph: Graph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        replicas, chosen = self.load(), REPLICA.get()
        if chosen is None:
            chosen = self._next = (self._next + 1) % len(replicas)
        return replicas[chosen].run(graph.name, inputs)

    @property
    def num_cores(self) -> int:
        """Cores of one replica: more than one as a pipeline."""
        return self.artifact.num_cores.value

    def _starts(self) -> Placement:
        """The first core of each replica."""
        if self.num_cores > 1 and len(self.placement) % self.num_cores and len(self.placement) > 1:
            warnings.warn(
                f"{self.name} takes {self.num_cores} cores, so some of the {len(self.placement)} cores stay empty",
                stacklevel=2,
            )
        return starts_of(self.placement, self.num_cores)

    def _try_load(self) -> None:
        try:
            self.load(_stop_at_exit)
        except NeuronError:
            pass  # the first call tries again, and raises it
        except RuntimeError:
            # At exit, thread pools accept no more work. A thread that still calls the model loads it itself.
            if threading.main_thread().is_alive():
                raise

    def _loaded(self, on_progress: Callable[[object], None]) -> list[Replica]:
        instance = self.require_target()
        if self.artifact.inlined is None and len(self._weights) < len(self.metadata["weights"]):
            message = f"{self.name} has no weights yet."
            raise WeightsError(message, hint="Give it the weights of each rank first.", model=self.name)
        if self._host is None:
            # A state stays on the host code that it began with, so that has to be ready from the start.
            mode: Mode = "wait" if self.program.states else "background"
            level = self.metadata["optlevel"]
            program = self.artifact.host_program
            self._host = lower(program, optlevel=level, mode=mode, on_start=on_progress, on_done=on_progress)
        tensors = self.artifact.inlined_weights() or Choice(
            value=StateDict(
                tensors=dict(zip(self.metadata["weights"], self._weights, strict=True)), origin=str(self.artifact.path)
            ),
            reason="beside the NEFF",
        )
        weights = self.artifact.bind(tensors.value)
        bound = BoundProgram(
            artifact=self.artifact,
            tensors=tensors,
            weights=weights,
            host=self._host,
            model_name=self.name,
            instance=instance,
            target=TARGETS[instance.family],
            auto_cast=self.metadata.get("auto_cast", "none"),  # missing in older files
        )
        replicas: list[Replica] = []
        for loaded in load_copies(self._starts(), bound.load, model=self.name):
            state = loaded.take_state() if self.program.states else []
            for tensor, key in zip(state, self.artifact.host_program.states, strict=True):
                tensor.copy_(tensors.value.join([_state_and_rank(key)[0]])[0])
            of_core = (*weights.tensors.values(), *self.program.constants.values(), *state)
            replicas.append(Replica(loaded=loaded, state=state, on_core=frozenset(map(_address, of_core))))
        return replicas


def _state_and_rank(key: str) -> tuple[str, int]:
    """Name of a state in the traced module, and the rank that has it, of "cache.0@1"."""
    name, _, rank = key.partition("@")
    return name.rpartition(".")[0], int(rank or 0)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
