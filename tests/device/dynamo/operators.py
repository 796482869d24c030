"""Compile operators of torch's own database (`op_db`), forward and backward, and compare them with the CPU.

python -m tests.device.dynamo.operators [--samples N] [NAME ...]      # the whole sweep takes some minutes

An operator fails if it is refused although no published rule refuses it, or if a result or gradient differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_map

from optimum_neuron.compiler.rules import UNKNOWN
from optimum_neuron.device import library
from optimum_neuron.errors import UnsupportedOperatorError
from tests.device import opinfo

TOLERANCE = 1e-4
REFUSED = "refused"
"""Kind of an operator that a published rule refuses."""


def compiled(op: Any) -> Any:
    """The operator, compiled operator by operator."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    return torch.compile(call, backend="neuron", options={"optlevel": "1"})


def difference(actual: Any, expected: Any, *, values: bool) -> str | None:
    """Difference between results, or None; strides are those of decompositions."""
    results, targets = opinfo.tensors(actual), opinfo.tensors(expected)
    if len(results) != len(targets):
        return f"{len(results)} results instead of {len(targets)}"
    for result, target in zip(results, targets, strict=True):
        if (result.shape, result.dtype) != (target.shape, target.dtype):
            return f"{result.dtype} {tuple(result.shape)} instead of {target.dtype} {tuple(target.shape)}"
        pair = opinfo.plain(result).cpu(), opinfo.plain(target)
        if values and not torch.allclose(*pair, atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True):
            return f"values differ by {(pair[0].double() - pair[1].double()).abs().nan_to_num(0).max():.3g}"
    return None


def refusal(error: Exception) -> UnsupportedOperatorError | None:
    """The refusal inside an error of torch; a backward raises it as it is."""
    inner = error.inner_exception if isinstance(error, BackendCompilerFailed) else error
    return inner if isinstance(inner, UnsupportedOperatorError) else None


def problem_of(op: Any, arguments: opinfo.Arguments, expected: Any) -> tuple[str, str] | None:
    """Kind and text of what is wrong with one compiled call, or None."""
    torch._dynamo.reset()
    try:
        actual = opinfo.run(compiled(op), tree_map(opinfo.Device(), arguments), "neuron")
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        if (found := refusal(error)) is None:
            return type(error).__name__, text
        refused = [count for count in found.details["operators"] if count["verdict"] == "unsupported"]
        return (UNKNOWN if any(count["rule"] == UNKNOWN for count in refused) else REFUSED), text
    problem = difference(actual, expected, values=True)
    if problem and opinfo.is_random(op, arguments):
        problem = difference(actual, expected, values=False)
    return ("values", problem) if problem else None


def problems(names: list[str], samples: int) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Each entry of the database, with the first problem of its samples."""
    for name, op in opinfo.entries():
        dtype = opinfo.dtype_of(op, torch.float32)
        if (names and name not in names) or dtype is None:
            continue
        found = None
        for sample in opinfo.samples_of(op, dtype, samples):
            arguments = ([sample.input, *sample.args], sample.kwargs)
            try:
                expected = opinfo.run(op, arguments, "cpu")
            # The database has samples that raise on the CPU too.
            except Exception:
                continue
            found = found or problem_of(op, arguments, expected)
        yield name, found


def sweep(names: list[str], samples: int) -> dict[str, tuple[str, str] | None]:
    """Problems of all entries, or of some."""

    def unseeded(op: Any, *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    # Samples of random operators set a seed inside the compiled function, which no graph can do.
    with warnings.catch_warnings(), mock.patch.object(common_methods_invocations, "wrapper_set_seed", unseeded):
        warnings.simplefilter("ignore")
        return dict(problems(names, samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    library.load()  # before the first backward, when torch's engine counts devices
    logging.disable(logging.WARNING)
    results = sweep(arguments.names, arguments.samples)
    if arguments.json:
        print(json.dumps(results))
        return
    for name, problem in results.items():
        if problem:
            print(f"{name}: {problem[0]}: {problem[1]}")
    print(dict(collections.Counter(problem[0] if problem else "passed" for problem in results.values())))


if __name__ == "__main__":
    main()
