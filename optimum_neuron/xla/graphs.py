"""Graphs between two calls of `sync`: each is compiled once for its hash, counted, and put on the timeline of its core.

Values are there already; what ends here is the record of how they came about. Reading one on the host ends a graph too.

    from optimum_neuron import xla

    xla.enable()
    for batch in loader:
        loss = model(batch).sum()
        xla.sync()
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from ..base import env
from ..device.dynamo import open_track
from ..errors import LoweringError, NeuronError
from ..runtime import Track
from ..simulator.work import GraphWork
from ..upstream.torch import FUSED_DEVICES, register_device_module
from . import closures, eager, library, metrics, report, torch_module
from .compiled import CompiledGraph, compile_recorded
from .ordinals import world_size
from .places import PLACES
from .tape import Closed, Operand, read_tape

MODEL = "XLA steps"
"""Name of the graphs of a device, where models are named."""
ASSUMPTION = "each graph between two syncs runs as one on the core, as PyTorch/XLA compiles it"
UNEXPECTED = "Unexpected execution happens inside the compiled function, exiting"
"""torch_xla's message where values are read although that is refused."""

_lock = threading.RLock()
_loaded: collections.OrderedDict[str, CompiledGraph] = collections.OrderedDict()
"""Compiled graphs by hash, the latest used last."""
_execution_allowed = True
_num_regions = 0
"""Regions that are open."""
_tracks: dict[int, Track] = {}


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """End the graph of a step: torch_xla's `sync` and `mark_step`.

    Args:
        wait: wait for the values; they are there already, so this changes nothing.
        reset_scope: begin names of scopes again; scopes have no names here, so this changes nothing.

    Raises:
        UnsupportedOperatorError: the target refuses operators of the graph.
    """
    end_step("")


def end_step(name: str) -> str:
    """End the graph of a step under a name for reports, and return its hash; empty where nothing was recorded."""
    functions = library.functions()
    metrics.increment_counter("MarkStep")
    report.REPORT.add_step(functions.xla_num_live())
    try:
        return _end(f"sync of {name}" if name else "sync", report.here())
    finally:
        closures.run_step_closures()


def execution_allowed() -> bool:
    """Return whether values may be read on the host."""
    return _execution_allowed


def set_execution_allowed(allowed: bool) -> None:
    """Allow or refuse to read values on the host while they wait for their graph."""
    global _execution_allowed
    _execution_allowed = allowed


@contextlib.contextmanager
def allow_execution(allowed: bool) -> Iterator[None]:
    """Allow or refuse to read values on the host for the length of a block."""
    before = _execution_allowed
    set_execution_allowed(allowed)
    try:
        yield
    finally:
        set_execution_allowed(before)


class Region:
    """A block that is one graph: what torch_xla's `compile` and `step` make of a function.

    What was recorded before is a graph of its own; the block's graph ends with it. Use one instance for all calls of a
    function, so that its graphs are counted.

    Args:
        name: name in reports.
        full_graph: whether reading a value on the host inside raises an error.
        max_different_graphs: largest number of different graphs that the block may have; None for any.
    """

    def __init__(
        self, name: str | None = None, *, full_graph: bool = False, max_different_graphs: int | None = None
    ) -> None:
        self.name, self.full_graph, self.max_different_graphs = name or "region", full_graph, max_different_graphs
        self._hashes: set[str] = set()
        self._before = True

    def __enter__(self) -> Region:
        global _num_regions
        end_step(f"{self.name}_clear_pending")
        _num_regions += 1
        self._before = _execution_allowed
        if self.full_graph:
            set_execution_allowed(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _num_regions
        set_execution_allowed(self._before)
        try:
            graph_hash = end_step(self.name)
        finally:
            _num_regions -= 1
        if graph_hash:
            self._hashes.add(graph_hash)
        most = self.max_different_graphs
        if kind is None and most is not None and len(self._hashes) > most:
            message = f"'{self.name}' has {len(self._hashes)} different graphs, and max_different_graphs is {most}."
            hint = "Pad its inputs to one shape, or raise max_different_graphs."
            raise LoweringError(message, hint=hint, name=self.name, num_graphs=len(self._hashes), limit=most)


def _end(cause: str, place: str) -> str:
    began_ns = time.perf_counter_ns()
    with _lock:
        metrics.add_sample("DeviceLockWait", time.perf_counter_ns() - began_ns, "time")
        began_ns = time.perf_counter_ns()
        closed = Closed()
        functions = library.functions()
        extracts = env.extracts_graphs()
        functions.xla_close(ctypes.byref(closed), extracts)
        if closed.num_operators == 0:
            return ""
        if _runs_apart():
            for work in eager.run(closed, functions):
                _add_run(work, closed.began_ns, closed.began_ns)
            return ""
        metrics.add_sample("UnwrapXlaData", time.perf_counter_ns() - began_ns, "time")
        metrics.increment_counter("SyncTensorsToData")
        metrics.add_sample("TensorsGraphSize", closed.num_operators)
        compiled = _loaded.get(closed.hash)
        if compiled is None:
            compiled = _compiled(closed, functions, cause, place)
        else:
            metrics.increment_counter("CachedCompile")
            metrics.add_sample("RunCachedGraphInputData", closed.num_inputs)
            metrics.add_sample("RunCachedGraphOutputData", closed.num_outputs)
        _loaded[closed.hash] = compiled
        _loaded.move_to_end(closed.hash)
        keep = env.num_recent_models()
        while keep is not None and len(_loaded) > max(keep, 1):
            _loaded.popitem(last=False)
        if extracts:
            return closed.hash
        report.REPORT.add_run(closed, compiled, cause, place)
        metrics.add_sample("ExecuteTime", closed.ended_ns - closed.began_ns, "time")
        metrics.increment_counter("ExecuteComputation")
        began_ns = time.perf_counter_ns()
        _add_run(compiled.work, closed.began_ns, closed.ended_ns)
        metrics.add_sample("WrapXlaData", time.perf_counter_ns() - began_ns, "time")
        return closed.hash


def _compiled(closed: Closed, functions: ctypes.CDLL, cause: str, place: str) -> CompiledGraph:
    began_ns = time.perf_counter_ns()
    compiled = compile_recorded(closed, functions)
    took_ns = time.perf_counter_ns() - began_ns
    metrics.increment_counter("UncachedCompile")
    metrics.increment_counter("CreateCompileHandles")
    metrics.increment_counter("PersistentCacheHit" if compiled.was_cached else "PersistentCacheMiss")
    metrics.add_sample("CompileTime", took_ns, "time")
    metrics.add_sample("InputOutputAliasCount", closed.num_aliased)
    report.REPORT.add_compile(closed, compiled, cause, place, took_ns / 1e9)
    return compiled


def _runs_apart() -> bool:
    """Whether operators are programs of their own now."""
    return eager.is_enabled() and _num_regions == 0


def settle(cause: str) -> None:
    """End what was recorded, for another reason than the end of a step."""
    if library.is_loaded():
        _end(cause, report.here())


def _add_run(work: GraphWork, began_ns: int, ended_ns: int) -> None:
    """Add a run to the timeline of its core."""
    core = library.first_core() + max(library.functions().neuron_current_device(), 0)
    if core not in _tracks:
        _tracks[core] = open_track(core, MODEL, (ASSUMPTION,), num_peers=world_size())
    track = _tracks[core]
    track.works.setdefault(work.name, work)
    track.add(work.name, threading.get_ident(), began_ns, ended_ns)


def _read(number: int) -> int:
    """A value of the graph so far is read on the host, which ends the graph; C++ calls it."""
    name = library.functions().xla_operator_name(number).decode()
    place = report.here()
    if not _execution_allowed:
        raise NeuronError(UNEXPECTED, operator=name, place=place)
    report.REPORT.add_read(name, place)
    _end(f"{name} reads a value", place)
    return 0


def _placed(number: int) -> int:
    """The number of the user's line that calls an operator with new shapes; C++ calls it."""
    return PLACES.here()


def _grew(num_operators: int) -> int:
    """A graph has become long; C++ calls it each time that it has twice as many operators."""
    report.REPORT.warn_of_growth(num_operators)
    return 0


def discard() -> list[str]:
    """Drop what was recorded since the last graph, and return its operators: an error has made it worthless."""
    with _lock:
        closed = Closed()
        functions = library.functions()
        functions.xla_close(ctypes.byref(closed), 0)
        operations = read_tape(functions, closed.num_words)
    shapes = [[str(list(value.size)) for value in one.results if isinstance(value, Operand)] for one in operations]
    return [" ".join([one.name, *sizes]) for one, sizes in zip(operations, shapes, strict=True)]


def num_cached() -> int:
    """Number of compiled graphs in this process."""
    return len(_loaded)


def forget() -> None:
    """Forget the graphs of this process; those of the compile cache stay."""
    with _lock:
        _loaded.clear()


def _connect() -> None:
    """Begin to record, once the device is loaded."""
    register_device_module("xla", torch_module)
    FUSED_DEVICES.replace(lambda devices: lambda: [*devices(), "xla"])
    library.connect(_read, _placed, _grew)
    metrics.add_source(_operator_counters, library.functions().xla_reset_calls)
    metrics.add_refresh(_take_measured)
    report.install()


def _operator_counters() -> dict[str, int]:
    functions = library.functions()
    counters: dict[str, int] = {}
    for number in range(functions.xla_num_operators()):
        calls, reads = functions.xla_operator_calls(number), functions.xla_operator_reads(number)
        if not calls and not reads:
            continue
        name = functions.xla_operator_name(number).decode()
        on_device = metrics.DEVICE_PREFIX + name.partition("::")[2].partition(".")[0]
        on_host = "aten::nonzero" if name.startswith("aten::index.") else name  # a mask as an index
        for counter, count in ((on_device, calls), (on_host, reads)):
            if count:
                counters[counter] = counters.get(counter, 0) + count
    tensors = {
        "CreateXlaTensor": functions.xla_num_created(),
        "DestroyXlaTensor": functions.xla_num_destroyed(),
    }
    return counters | tensors if any(tensors.values()) else counters


def _take_measured() -> None:
    if _runs_apart():
        settle("metrics")
    for transfer in library.transfers():
        to_device = bool(transfer.to_device)
        metrics.add_sample("TransferToDeviceTime" if to_device else "TransferFromDeviceTime", transfer.took_ns, "time")
        metrics.add_sample("OutboundData" if to_device else "InboundData", transfer.size_bytes, "bytes")
        if to_device:
            metrics.add_sample("TensorToData", transfer.took_ns, "time")
            metrics.increment_counter("DeviceDataCacheMiss")
            if _runs_apart():
                eager.count_constant(transfer.size_bytes, transfer.took_ns)
    number, took_ns = library.traced()
    if number:
        metrics.add_sample("LazyTracing", took_ns, "time", count=number)


library.complete_with(_connect)
