"""Compare an operator of torch's own database (`op_db`) on the device with the CPU: values, strides and gradients.

python -m tests.device.opinfo [--samples N] [NAME ...]       # the whole sweep, as docs/device.md reports it

With `--adaptive`, operators also run from the queue of adaptive eager mode.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from optimum_neuron.device import library

MODES = {"plain": False, "adaptive": True}
"""Name to whether operators are queued."""
DTYPES = (torch.float32, torch.bfloat16)
SEED = 7
UNINITIALIZED = ("empty", "new_empty", "to_empty")
Arguments = tuple[list[Any], dict[str, Any]]


class Device:
    """Arguments on the device: every layout, offset and shared storage of the original is kept."""

    def __init__(self) -> None:
        self.storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device("neuron")
        return torch.device("neuron") if isinstance(value, str) and value == "cpu" else value

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided:
            return tensor.to("neuron")
        storage = tensor.untyped_storage()
        # The original is kept too: an address is given out again.
        _, copy = self.storages.setdefault(storage._cdata, (storage, storage.clone()))
        plain = torch.empty(0, dtype=tensor.dtype).set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
        return torch.ops.neuron_sim.alias_neuron(plain, 0).requires_grad_(tensor.requires_grad)


def entries() -> list[tuple[str, Any]]:
    """All entries with a unique name."""
    return [(f"{op.name}.{op.variant_test_name}".rstrip("."), op) for op in op_db]


def dtype_of(op: Any, preferred: torch.dtype) -> torch.dtype | None:
    """Return the dtype to test with: `preferred`, or another supported one in place of float32."""
    supported = op.supported_dtypes("cpu")
    if preferred in supported:
        return preferred
    if preferred is torch.bfloat16:
        return None
    return next((dtype for dtype in (torch.int64, torch.bool, torch.complex64) if dtype in supported), None)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Real numbers without a history."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def difference(actual: Any, expected: Any, *, values: bool) -> str | None:
    """Difference between results, or None."""
    actual, expected = tree_flatten(actual)[0], tree_flatten(expected)[0]
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for a, b in zip(actual, expected, strict=True):
        if not isinstance(b, torch.Tensor):
            if values and a != b and not (isinstance(b, float) and b != b) and not isinstance(b, torch.device):
                return f"{a!r} instead of {b!r}"
            continue
        if b.device.type == "cpu" and a.device.type != "neuron":
            return f"result on {a.device}"
        if (a.shape, a.stride(), a.dtype) != (b.shape, b.stride(), b.dtype):
            return f"{a.dtype} {tuple(a.shape)} {a.stride()} instead of {b.dtype} {tuple(b.shape)} {b.stride()}"
        a, b = plain(a).cpu(), plain(b)
        if values and not torch.equal(a.nan_to_num(3.0), b.nan_to_num(3.0)):
            return f"values differ by {(a.double() - b.double()).abs().nan_to_num(0).max():.3g}"
    return None


def run(op: Any, arguments: Arguments, device: str) -> tuple[Any, list[Any]]:
    """Results, and gradients for the inputs that ask for some."""
    torch.manual_seed(SEED)
    args, kwargs = arguments
    # Factories of the database name no device.
    with torch.device(device) if not tensors(arguments) else contextlib.nullcontext():
        result = op(*args, **kwargs)
    inputs = [t for t in tensors(arguments) if t.requires_grad]
    outputs = [t for t in tensors(result) if t.requires_grad]
    if not inputs or not outputs:
        return result, []
    generator = torch.Generator().manual_seed(SEED)
    move = Device() if device == "neuron" else (lambda tensor: tensor)
    weights = [move(torch.randn(o.shape, dtype=o.dtype, generator=generator)) for o in outputs]
    grads = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return result, [grad for grad in grads if grad is not None]


def samples_of(op: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(SEED)
    yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), count)


def check(op: Any, dtype: torch.dtype, count: int, modes: list[str]) -> dict[str, str]:
    """Why an entry fails, by mode."""
    problems: dict[str, str] = {}
    for number, sample in enumerate(samples_of(op, dtype, count)):
        arguments = ([sample.input, *sample.args], sample.kwargs)
        try:
            moved = [tree_map(Device(), arguments) for _ in modes]
            expected = run(op, arguments, "cpu")
        # The database has samples that raise on the CPU too.
        except Exception:
            continue
        for mode, copy in zip(modes, moved, strict=True):
            with torch.neuron.adaptive_eager(MODES[mode]):
                problem = problem_of(op, arguments, copy, expected)
            if problem:
                problems.setdefault(mode, f"sample {number}: {problem}")
    return problems


def problem_of(op: Any, arguments: Arguments, moved: Arguments, expected: Any) -> str | None:
    """Difference between one call on the device and the CPU's results, or None."""
    try:
        actual = run(op, moved, "neuron")
        problem = difference(actual, expected, values=True)
        if problem and is_random(op, arguments):
            problem = difference(actual, expected, values=False)
        return problem
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def is_random(op: Any, arguments: Arguments) -> bool:
    """Return whether two seeds give two results, or memory is left unwritten."""
    args, kwargs = arguments
    results = []
    with torch.no_grad():
        for seed in (1, 2):
            torch.manual_seed(seed)
            results.append(
                [plain(t).nan_to_num(3.0) for t in tensors(op(*args, **kwargs)) if t.layout == torch.strided]
            )
    return op.name.startswith(UNINITIALIZED) or any(not torch.equal(a, b) for a, b in zip(*results, strict=True))


CONTROLS = ("sparse.mm.reduce", "tensor_split")
"""Entries with known differences, which are in every part."""


def part_of(names: list[str], number: int, count: int) -> list[str]:
    """Every `count`-th entry, and the controls."""
    return sorted({*names[number::count], *CONTROLS})


def failures(names: list[str], count: int, modes: list[str]) -> dict[str, dict[str, str]]:
    """Reasons by mode, then by entry and dtype."""
    results: dict[str, dict[str, str]] = {mode: {} for mode in modes}
    for name, op in entries():
        if names and name not in names:
            continue
        for preferred in DTYPES:
            dtype = dtype_of(op, preferred)
            if dtype is None:
                continue
            for mode, reason in check(op, dtype, count, modes).items():
                results[mode][f"{name} {str(dtype).removeprefix('torch.')}"] = reason
    return results


def controls() -> dict[str, object]:
    """Results of `difference` for differing values: a sweep without sensitivity proves nothing."""
    actual, expected = torch.ones(2, 3, device="neuron"), torch.ones(2, 3)
    return {
        "value": difference(actual + 1, expected, values=True),
        "stride": "instead of" in str(difference(actual.t().contiguous().t(), expected, values=True)),
        "host": difference(expected, expected, values=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--part", type=int, nargs=2, metavar=("NUMBER", "COUNT"), help="only a part of the entries")
    parser.add_argument("--adaptive", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    library.load()  # before the first backward, when torch's engine counts devices
    warnings.simplefilter("ignore")
    modes = ["plain", "adaptive"] if args.adaptive else ["plain"]
    names = [name for name, _ in entries()]
    chosen = part_of(names, *args.part) if args.part else args.names
    results = failures(chosen, args.samples, modes)
    if args.json:
        checks = {}
        for mode in modes:
            with torch.neuron.adaptive_eager(MODES[mode]):
                checks[mode] = controls()
        print(json.dumps({"entries": names, "failures": results, "controls": checks}))
        return
    for mode, result in results.items():
        for name, reason in result.items():
            print(f"{mode}: {name}: {reason}")
        print(f"{mode}: {len(names) - len({name.split()[0] for name in result})} of {len(names)} entries pass")


if __name__ == "__main__":
    main()
