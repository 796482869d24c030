"""A program loaded on a simulated NeuronCore: core claimed, HBM charged, weights bound, ready to run.

model = load_program(program, weights, host, instance=instance, target=target, model_name="smollm2")
state = model.take_state()
logits = model.run("decode", [input_ids, position_ids], state)["logits"]
"""

from __future__ import annotations

import dataclasses
import logging
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import env
from ..compiler import MICROCODE_BYTES, MemoryNeed, Program, memory_need
from ..compiler.lower import HostCode
from ..core import AutoCast
from ..errors import CoreBusyError, DeviceMemoryError, ShapeError
from ..hardware import TARGETS, InstanceSpec, Target, legal_core_counts
from .cores import CoreClaim, claim_cores
from .executor import Executor
from .hbm import Charge
from .hooks import HOOKS
from .host_memory import keep_freed_memory
from .private_core import PrivateCore
from .publisher import PUBLISHER
from .segments import State
from .timeline import TIMELINE, Track

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

GIB = 1024**3


@dataclasses.dataclass
class LoadedProgram:
    """A program that can run; close it to free its core."""

    executor: Executor
    need: MemoryNeed
    claim: CoreClaim | PrivateCore
    target: Target
    charges: list[Charge]
    track: Track
    closed: bool = False
    _bound: tuple[HostCode | None, Mapping[str, torch.Tensor]] = (None, {})
    _idle_states: list[State] = dataclasses.field(default_factory=list)

    @property
    def program(self) -> Program:
        """Program that the host runs; if several cores share the model, the program of all of them."""
        return self.executor.program

    def run(
        self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()
    ) -> dict[str, torch.Tensor]:
        """Execute an entry point; see `Executor.run`.

        Raises:
            ShapeError: an input has another shape or dtype than the graph was compiled for.
            CoreBusyError: the program was closed, so its core may be another's by now.
        """
        self.require_open()
        # A sequence ends with the host code that it began with, though other code is ready meanwhile.
        executor = getattr(state, "executor", None) or self.executor
        started_ns = self.track.start()
        try:
            results = executor.run(graph, inputs, state)
        except BaseException as error:
            self.track.fail("incorrect_input" if isinstance(error, ShapeError) else "completed_with_err")
            raise
        self.track.end(graph, started_ns)
        return results

    def bind(self, host: HostCode, weights: Mapping[str, torch.Tensor]) -> None:
        """Run on other weights or host code from the next sequence on."""
        code = host.current()
        self.executor = Executor(self.program, code.functions, code.preparations.apply(weights))
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
        """State tensors for one batch, charged beyond the first set; `beside` another state they share its host code.

        Raises:
            DeviceMemoryError: another set does not fit in the core's HBM.
            CoreBusyError: the program was closed.
        """
        self.require_open()
        try:
            state = self._idle_states.pop()  # not asked first: another thread may take the last one in between
        except IndexError:
            charges: list[Charge] = []
            try:
                for ledger in self.claim.ledgers:
                    charges.append(ledger.charge("kv_cache", self.need.kv_cache, self.claim.model))
            except DeviceMemoryError:
                _free(charges)
                raise
            self.charges += charges
            state = self.executor.new_state()
            state.charges = charges
        state.executor = self.executor if beside is None else beside.executor
        return state

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
        _release(self.charges, self.claim, self.track)
        PUBLISHER.wake()

    def require_open(self) -> None:
        """Check that the program can still run.

        Raises:
            CoreBusyError: the program was closed.
        """
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
        program: Program that runs on each core.
        weights: tensors by the program's names.
        host: its host code.
        instance: the simulated instance.
        target: Target that the program was compiled for.
        model_name: for messages.
        host_program: Program that computes all cores in turn, if several share the model; None for `program` itself.
        num_cores: cores that share the model.
        core: counted from 0 among the cores that the process may use; None takes the least loaded.
        claim: the core, claimed before, in place of `core`; it is released with the program.
        auto_cast: Rounded operations of its compile, for its simulated time.
        task: task of the model, for the interval of that time; None if unknown.

    Raises:
        CoreBusyError: every allowed core is held by another process.
        DeviceMemoryError: the program does not fit; the message has the table and the changes that make it fit.
    """
    need = memory_need(program, lnc=target.chip.default_lnc)
    require_fit(need, instance=instance, target=target, model_name=model_name, num_cores=num_cores)
    claim = claim or claim_cores(instance, model=model_name, num_cores=num_cores, start=core)
    keep_freed_memory()
    track = Track(program, model=model_name, instance=instance, core_ids=claim.core_ids, auto_cast=auto_cast, task=task)
    charges: list[Charge] = []
    try:
        if claim.core_ids:  # calls on a private core are no use of the instance
            TIMELINE.open(track)
            announce(track)
        _charge(need, claim, charges)
        code = host.current()
        executor = Executor(host_program or program, code.functions, code.preparations.apply(weights))
    except BaseException:
        _release(charges, claim, track)
        raise
    loaded = LoadedProgram(executor=executor, need=need, claim=claim, target=target, charges=charges, track=track)
    loaded.watch(code, weights)
    first = executor.new_state()
    first.charges = [charge for charge in charges if charge.category == "kv_cache"]
    loaded.give_back(first)
    weakref.finalize(loaded, _release, charges, claim, track)
    PUBLISHER.wake()
    return loaded


def announce(track: Track) -> None:
    """Log the load, and record the calls if NEURON_RT_INSPECT_ENABLE requests a profile of this process."""
    logger.info("%s is loaded on %s, cores %s", track.model, track.instance, ", ".join(map(str, track.core_ids)))
    folder = env.inspect_folder()
    if folder is not None:
        HOOKS.inspect_process(folder)


def require_room(need: MemoryNeed, claim: CoreClaim | PrivateCore) -> None:
    """Check that a program fits in the memory left on its core, before its host code is made.

    Raises:
        DeviceMemoryError: it does not fit; the message has the table of the core.
    """
    charges: list[Charge] = []
    try:
        _charge(need, claim, charges)
    finally:
        _free(charges)


def _free(charges: Sequence[Charge]) -> None:
    for charge in charges:
        charge.release()


def _charge(need: MemoryNeed, claim: CoreClaim | PrivateCore, charges: list[Charge]) -> None:
    for ledger in claim.ledgers:
        for category in ("weights", "kv_cache", "scratch"):
            charges.append(ledger.charge(category, getattr(need, category), claim.model))


def _release(charges: list[Charge], claim: CoreClaim | PrivateCore, track: Track) -> None:
    TIMELINE.close(track)
    for charge in list(charges):  # another thread may give a state back meanwhile
        charge.release()
    claim.release()


def require_fit(
    need: MemoryNeed, *, instance: InstanceSpec, target: Target, model_name: str, num_cores: int = 1
) -> None:
    """Check that a program fits the HBM of one core.

    Raises:
        DeviceMemoryError: it does not fit; the message has the table and the changes that make it fit.
    """
    available = target.hbm_bytes_per_core()
    if need.total <= available:
        return
    message = (
        f"{model_name} needs {need.total / GIB:.2f} GiB, but a core of {instance.name} has {available / GIB:.2f} GiB.\n"
        f"{need.table(available)}\n  (simulated)"
    )
    hint = _changes_that_fit(need, target, instance, num_cores)
    raise DeviceMemoryError(
        message, hint=hint, **dataclasses.asdict(need), total=need.total, available=available, simulated=True
    )


def _changes_that_fit(need: MemoryNeed, target: Target, instance: InstanceSpec, num_cores: int) -> str:
    """Return each single change that makes the program fit, shapes first; if there is none, how much is missing."""
    available = target.hbm_bytes_per_core()
    room = available - need.weights - need.code
    changes = []
    if need.kv_cache and room > need.scratch:
        # The cache follows rows and slots; scratch does so for the most part, but not where it has copies of weights.
        surely = math.ceil(need.kv_cache / (room - need.scratch))
        at_least = math.ceil((need.kv_cache + need.scratch) / room)
        either = f"{at_least}, or {surely} if scratch does not shrink with it" if at_least < surely else str(surely)
        cache = need.kv_cache / at_least / GIB
        changes.append(f"divide batch_size or sequence_length by {either}: the cache then takes {cache:.2f} GiB")
    if need.total - (need.weights + need.kv_cache) / 2 <= available:
        changes.append("pass torch_dtype=bfloat16 where the model is float32: weights and cache then take half")
    larger = [other for other in TARGETS.values() if other.compilable and _fits(need, other)]
    if larger:
        best = min(larger, key=lambda other: other.hbm_bytes_per_core())
        changes.append(f"pass instance_type={best.name}: its cores have {best.hbm_bytes_per_core() / GIB:.0f} GiB")
    if (count := _degree_that_fits(need, available, instance, num_cores)) is not None:
        changes.append(f"pass tensor_parallel_size={count}: that many cores of {instance.name} share the model")
    if not changes and room > 0:
        changes.append(
            "lower batch_size, sequence_length or prefill_buckets: cache and scratch take "
            f"{(need.kv_cache + need.scratch) / GIB:.2f} GiB, and {room / GIB:.2f} GiB are left for them"
        )
    if not changes:
        cores = math.ceil((need.total - need.code) / (available - need.code))
        changes.append(f"compile a smaller model: no single core of {target.name} holds this one, it takes {cores}")
    text = "; or ".join(changes)
    return f"{text[0].upper()}{text[1:]}."


def _degree_that_fits(need: MemoryNeed, available: int, instance: InstanceSpec, num_cores: int) -> int | None:
    """Return the smallest number of cores that hold a model which takes `need` on each of `num_cores`."""
    divided = (need.weights + need.kv_cache) * num_cores
    degrees = [count for count in legal_core_counts(instance).counts if count > num_cores]
    return next((n for n in degrees if math.ceil(divided / n) + need.scratch + need.code <= available), None)


def _fits(need: MemoryNeed, target: Target) -> bool:
    """Return whether another target's core holds it, which may reserve more for its own code."""
    code = MICROCODE_BYTES * target.chip.default_lnc
    return need.total - need.code + code <= target.hbm_bytes_per_core()
