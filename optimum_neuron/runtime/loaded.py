"""A program loaded on a simulated NeuronCore: core claimed, HBM charged, weights bound, ready to run.

model = load_program(program, weights, host, instance=instance, target=target, model_name="smollm2")
state = model.take_state()
logits = model.run("decode", [input_ids, position_ids], state)["logits"]
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..base import env
from ..base.core import AutoCast
from ..compiler import MemoryNeed, Program, stage_needs
from ..compiler.lower import HostCode
from ..compiler.passes import stage_programs
from ..errors import CoreBusyError, DeviceMemoryError, ShapeError
from ..hardware import InstanceSpec, Target, is_first_of_instance
from .cores import CoreClaim, claim_cores
from .executor import Executor, keep_freed_memory
from .fit import require_fit
from .hbm import Charge, HbmLedger
from .hooks import HOOKS
from .private_core import PrivateCore
from .publisher import PUBLISHER
from .segments import State
from .timeline import TIMELINE, Track, end_call

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

Core = TypeVar("Core")


@dataclasses.dataclass
class LoadedProgram:
    """A program that can run; close it to free its core."""

    executor: Executor
    needs: tuple[MemoryNeed, ...]
    """HBM of each core of a pipeline stage, by stage."""
    claim: CoreClaim | PrivateCore
    target: Target
    charges: list[Charge]
    tracks: tuple[Track, ...]
    """The calls of each stage, on its cores."""
    closed: bool = False
    _bound: tuple[HostCode | None, Mapping[str, torch.Tensor]] = (None, {})
    _idle_states: list[State] = dataclasses.field(default_factory=list)

    @property
    def need(self) -> MemoryNeed:
        """HBM of a core of the fullest stage."""
        return max(self.needs, key=lambda need: need.total)

    @property
    def program(self) -> Program:
        """Program that the host runs; if the model has several cores, the program of all of them."""
        return self.executor.program

    def run(
        self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()
    ) -> dict[str, torch.Tensor]:
        """Execute an entry point; see `Executor.run`."""
        return self._counted(graph, functools.partial(self._executor_of(state).run, graph, inputs, state))

    def prepared(
        self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()
    ) -> Callable[[], dict[str, torch.Tensor]]:
        """Return a function that executes an entry point on the contents that inputs and state then have.

        Its errors are those of `run`. Inputs are contiguous.
        """
        self.require_open()
        return functools.partial(self._counted, graph, self._executor_of(state).bind(graph, inputs, state))

    def _executor_of(self, state: Sequence[torch.Tensor]) -> Executor:
        # A sequence ends with the host code that it began with, though other code is ready meanwhile.
        own = state.executor if isinstance(state, State) else None
        return self.executor if own is None else own

    def _counted(self, graph: str, call: Callable[[], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Execute and count a call."""
        self.require_open()
        started_ns = self.tracks[0].start()
        try:
            results = call()
        except BaseException as error:
            self.tracks[0].fail("incorrect_input" if isinstance(error, ShapeError) else "completed_with_err")
            raise
        end_call(self.tracks, graph, started_ns)
        return results

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count no calls inside: validation of a program is no use of its cores."""
        with contextlib.ExitStack() as stack:
            for track in self.tracks:
                stack.enter_context(track.paused())
            yield

    def bind(self, host: HostCode, weights: Mapping[str, torch.Tensor]) -> None:
        """Run on other weights or host code from the next sequence on."""
        code = host.current()
        self.executor = _executor(self.program, code, weights)
        self.watch(code, weights)

    def watch(self, host: HostCode, weights: Mapping[str, torch.Tensor]) -> None:
        """Run on the compiled code of `host` once it is ready, unless something else was bound meanwhile."""
        self._bound, this = (host, weights), weakref.ref(self)

        def upgrade(compiled: HostCode) -> None:
            loaded = this()
            if loaded is not None and not loaded.closed and loaded._bound[0] is host:
                loaded.bind(compiled, loaded._bound[1])

        host.when_compiled(upgrade)

    def take_state(self, beside: State | None = None) -> State:
        """State tensors for one batch, charged beyond the first set; `beside` another, they share its host code."""
        self.require_open()
        try:
            state = self._idle_states.pop()  # not asked first: another thread may take the last one in between
        except IndexError:
            charges: list[Charge] = []
            try:
                for ledger, need in _by_core(self.claim, self.needs):
                    charges.append(ledger.charge("kv_cache", need.kv_cache, self.claim.model))
            except DeviceMemoryError:
                _free(charges)
                raise
            self.charges += charges
            state = self.executor.new_state()
            state.charges = charges
        state.executor = self.executor if beside is None else beside.executor
        return state

    def renewed(self, state: State) -> State:
        """Return the tensors of a state for sequences that begin now: their calls run on the newest host code."""
        fresh = State(state)
        fresh.executor = self.executor
        return fresh

    def give_back(self, state: State) -> None:
        """Return state tensors: one set waits for the next call, the HBM of all others is free again."""
        state.executor = None
        if not self._idle_states and not self.closed:
            self._idle_states.append(state)
            return
        charges, state.charges = state.charges, ()
        for charge in charges:
            if charge in self.charges:
                self.charges.remove(charge)
                charge.release()

    def close(self) -> None:
        """Free HBM and core; the object cannot run afterwards. Calling it again does nothing."""
        self.closed = True
        self._idle_states.clear()
        _release(self.charges, self.claim, self.tracks)
        PUBLISHER.wake()

    def require_open(self) -> None:
        """Check that the program can still run."""
        if self.closed:
            raise closed_error(self.claim.model)


def closed_error(model: str) -> CoreBusyError:
    """Return the error for using a closed model."""
    return CoreBusyError(
        f"{model} is closed: its core and memory were released.", hint="Load it again.", model=model, closed=True
    )


def load_program(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    host: HostCode,
    *,
    instance: InstanceSpec,
    target: Target,
    model_name: str,
    host_program: Program | None = None,
    num_cores: int = 1,
    core: int | None = None,
    claim: CoreClaim | PrivateCore | None = None,
    auto_cast: AutoCast = "none",
    task: str | None = None,
) -> LoadedProgram:
    """Claim a core, charge its HBM and bind the weights.

    Args:
        program: Program that runs on each core, or on one core of each stage.
        weights: tensors by the program's names.
        host: its host code.
        instance: the simulated instance.
        target: Target that the program was compiled for.
        model_name: for messages.
        host_program: Program that computes all cores in turn, if the model has several; None for `program` itself.
        num_cores: cores of the model.
        core: counted from 0 among the cores that the process may use; None takes the least loaded.
        claim: the core, claimed before, in place of `core`; it is released with the program.
        auto_cast: Rounded operations of its compile, for its simulated time.
        task: task of the model, for the interval of that time; None if unknown.
    """
    stages, needs = stage_programs(program), stage_needs(program, target)
    require_fit(
        needs,
        instance=instance,
        target=target,
        model_name=model_name,
        num_cores=num_cores,
        program=program,
    )
    claim = claim or claim_cores(instance, model=model_name, num_cores=num_cores, start=core)
    keep_freed_memory()
    tracks = tuple(
        Track(
            stage,
            model=model_name if len(stages) == 1 else f"{model_name}, stage {number}",
            instance=instance,
            core_ids=core_ids,
            is_first_of_instance=is_first_of_instance(instance, number, len(stages)),
            num_stages=len(stages),
            auto_cast=auto_cast,
            task=task,
        )
        for number, (stage, core_ids) in enumerate(zip(stages, _split(claim.core_ids, len(stages)), strict=True))
    )
    charges: list[Charge] = []
    try:
        if claim.core_ids:  # calls on a private core are no use of the instance
            for track in tracks:
                TIMELINE.open(track)
                announce(track)
        _charge(needs, claim, charges)
        code = host.current()
        executor = _executor(host_program or program, code, weights)
    except BaseException:
        _release(charges, claim, tracks)
        raise
    loaded = LoadedProgram(executor=executor, needs=needs, claim=claim, target=target, charges=charges, tracks=tracks)
    loaded.watch(code, weights)
    first = executor.new_state()
    first.charges = [charge for charge in charges if charge.category == "kv_cache"]
    loaded.give_back(first)
    weakref.finalize(loaded, _release, charges, claim, tracks)
    PUBLISHER.wake()
    return loaded


def _executor(program: Program, code: HostCode, weights: Mapping[str, torch.Tensor]) -> Executor:
    return Executor(program, code.functions, code.preparations.apply(weights), levels=code.levels)


def announce(track: Track) -> None:
    """Log the load, and record the calls if NEURON_RT_INSPECT_ENABLE requests a profile of this process."""
    logger.info("%s is loaded on %s, cores %s", track.model, track.instance, ", ".join(map(str, track.core_ids)))
    folder = env.inspect_folder()
    if folder is not None:
        HOOKS.inspect_process(folder)


def require_room(needs: Sequence[MemoryNeed], claim: CoreClaim | PrivateCore) -> None:
    """Check that a program fits in the memory left on its cores, before its host code is made.

    Args:
        needs: HBM of each core of a pipeline stage, by stage.
        claim: the cores.
    """
    charges: list[Charge] = []
    try:
        _charge(needs, claim, charges)
    finally:
        _free(charges)


def _free(charges: Sequence[Charge]) -> None:
    for charge in charges:
        charge.release()


def _split(cores: Sequence[Core], num_stages: int) -> list[tuple[Core, ...]]:
    """Divide the cores of a model among its stages, in order."""
    width = len(cores) // num_stages
    return [tuple(cores[stage * width : (stage + 1) * width]) for stage in range(num_stages)]


def _by_core(claim: CoreClaim | PrivateCore, needs: Sequence[MemoryNeed]) -> Iterator[tuple[HbmLedger, MemoryNeed]]:
    """The ledger of each core with what its stage needs."""
    for ledgers, need in zip(_split(claim.ledgers, len(needs)), needs, strict=True):
        yield from ((ledger, need) for ledger in ledgers)


def _charge(needs: Sequence[MemoryNeed], claim: CoreClaim | PrivateCore, charges: list[Charge]) -> None:
    for ledger, need in _by_core(claim, needs):
        for category in ("weights", "kv_cache", "scratch"):
            charges.append(ledger.charge(category, getattr(need, category), claim.model))


def _release(charges: list[Charge], claim: CoreClaim | PrivateCore, tracks: Sequence[Track]) -> None:
    for track in tracks:
        TIMELINE.close(track)
    for charge in list(charges):  # another thread may give a state back meanwhile
        charge.release()
    claim.release()
