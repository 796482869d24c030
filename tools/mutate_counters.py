"""Multiply each counter of the simulator by 1.1, in turn, and check that a test fails.

    python tools/mutate_counters.py                  # all; a line for each mutant, exit 1 if one survives
    python tools/mutate_counters.py graph.host_bytes # one

A mutant is a counter of one source: `graph` counts compiled and captured graphs, `sizes` decoders from their
configuration, `memory` the HBM of a program, `kept` that of a configuration. Each runs in its own process, forked
behind the imports, which runs the tests of counters until one fails. Mutants of counters that a source always leaves at
zero are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

FACTOR = 1.1
_WORK = "tests/simulator/test_work.py::test_"
TESTS = (
    f"{_WORK}counts_of_a_decoder_are_these",
    f"{_WORK}graph_counts_weights_boundaries_and_float32_factor",
    f"{_WORK}on_device_inputs_are_read_and_results_and_changes_are_written",
    f"{_WORK}operator_of_unknown_size_is_counted_as_unknown",
    f"{_WORK}result_beyond_on_chip_memory_is_written_and_read",
    *("tests/compiler/test_memory.py", "tests/compiler/test_quantized.py", "tests/compiler/passes/test_stages.py"),
    "tests/simulator/test_published.py::test_sizes_and_compiled_graphs_have_equal_work_memory_and_time[llama]",
)
"""Tests of counters, quick ones first."""
_PACKAGE = "optimum_neuron.simulator.work"
NEVER_OF_SIZES = ("num_unknown", "num_sends", "sent_bytes", "spill_bytes", "result_bytes", "unpacked_elements")
"""Counters that a decoder's sizes leave at zero: quantized and divided programs are counted from graphs."""


def mutants() -> dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Every mutant by name: a context in which it is alive."""
    from optimum_neuron.compiler import MemoryNeed
    from optimum_neuron.simulator.work import Work

    found: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {}
    for field in (field.name for field in dataclasses.fields(Work) if field.name != "kernels"):
        found[f"graph.{field}"] = _counted(f"{_PACKAGE}.graph.GraphWork", field)
        if field not in NEVER_OF_SIZES:
            found[f"sizes.{field}"] = _counted(f"{_PACKAGE}.decoder.GraphWork", field)
    for field in (field.name for field in dataclasses.fields(MemoryNeed)):
        found[f"memory.{field}"] = _needed(field)
    for name in ("parameter_bytes", "cache_bytes"):
        found[f"kept.{name}"] = _kept(name)
    return found


def _counted(target: str, field: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Every step of the works that a module makes has more of `field`."""
    from optimum_neuron.simulator.work import GraphWork, Step

    def more(step: Step) -> Step:
        value = getattr(step.work, field)
        changed = type(value)(value * FACTOR) if abs(value) > 1 / (FACTOR - 1) else value + (value > 0)
        return dataclasses.replace(step, work=dataclasses.replace(step.work, **{field: changed}))

    def make(**values: Any) -> GraphWork:
        return GraphWork(**values | {"steps": tuple(map(more, values["steps"]))})

    return lambda: mock.patch(target, make)


def _needed(field: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    from optimum_neuron.compiler import MemoryNeed

    def make(**values: Any) -> MemoryNeed:
        return MemoryNeed(**values | {field: int(values[field] * FACTOR)})

    return lambda: mock.patch("optimum_neuron.compiler.memory.MemoryNeed", make)


def _kept(name: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    from optimum_neuron.simulator import decoders, work

    @contextlib.contextmanager
    def alive() -> Iterator[None]:
        function = getattr(work, name)

        def more(*arguments: Any, **options: Any) -> int:
            return int(function(*arguments, **options) * FACTOR)

        with mock.patch.object(decoders, name, more), mock.patch.object(work, name, more):
            yield

    return alive


def failing_test(mutant: Callable[[], contextlib.AbstractContextManager[Any]]) -> str:
    """Run the tests with a mutant in a forked process, and return the first that fails; empty if all pass."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with mutant():
            result = _first_failure()
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        result = file.read()
    os.waitpid(child, 0)
    return result


def _first_failure() -> str:
    import pytest

    class Watch:
        failed = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

    watch = Watch()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *TESTS], plugins=[watch])
    return watch.failed or ("" if code == 0 else f"pytest stopped with {code}")


def main() -> int:
    """Try the mutants, and say which test ends each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants; default: all")
    names = parser.parse_args().names
    os.chdir(ROOT)
    every = mutants()
    if unknown := sorted(set(names) - every.keys()):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(every)}")
    if failed := failing_test(contextlib.nullcontext):
        parser.error(f"without any mutant, {failed} fails")
    survivors = []
    for name in names or every:
        failed = failing_test(every[name])
        print(f"{name:28} {failed or 'SURVIVES'}", flush=True)
        survivors += [] if failed else [name]
    print(f"{len(survivors)} of {len(names or every)} survive: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
