"""A program as members of a NEFF, and back.

Members: `program.json` (structure), `bodies/<name>.json` (one for each subprogram), `constants.safetensors`,
`kernels/<name>.json` (one for each NKI kernel, with `.safetensors` for its constants), and `weights.safetensors` where
weights are inlined.

A NEFF can come from anyone, and some ATen operators do more than compute: they open files, replace the storage of a
tensor, or trust indices and pointers that they are given. So there is an allow-list, checked when a NEFF is written and
when it is read. It has the operators that a compile can produce: those with a rule, those that torch decomposes, and
those of `_HOST`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ..base.core import TensorSpec
from ..base.typed_data import misfits
from ..errors import ArtifactError, FormatVersionError, UnsupportedOperatorError
from ..hardware import Target
from .ir import IR_VERSION, Program, Role, Subprogram, graph_from_dict, spec_from_dict
from .kernels import kernels_of, members_of, read_kernels
from .neff import Neff, write_neff
from .passes import verify
from .rules import base_name, known_ops
from .serialize import body_from_dict, body_to_dict, make_subprogram
from .version import COMPILER_VERSION

PROGRAM_MEMBER, CONSTANTS_MEMBER, WEIGHTS_MEMBER = "program.json", "constants.safetensors", "weights.safetensors"

_EXPORT_AGAIN = "Export the model again."

_GRAPH = {
    **{"name": str, "role": Role, "rare": bool, "sizes": dict[str, int]},
    **{"inputs": dict[str, TensorSpec], "outputs": dict[str, str]},
}
"""Types of a graph; its calls are verified with the whole program."""

_in_use: WeakValueDictionary[tuple[str, bytes], Subprogram] = WeakValueDictionary()
"""Subprograms of the loaded programs, by name and hash of their text: another load of the same model shares them."""

_BROKEN = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised by reading plain data that `write_program` did not write."""


def write_program(
    path: Path, program: Program, *, name: str, target: Target, metadata: Mapping[str, Any], weights: Path | None = None
) -> None:
    """Write a program as a NEFF; `weights` is a safetensors file to inline."""
    from safetensors.torch import save

    bodies = {name: body_to_dict(subprogram.body) for name, subprogram in program.subprograms.items()}
    if refused := not_allowed(node["op"] for body in bodies.values() for node in body["nodes"]):
        message = f"No NEFF may call {', '.join(refused)}: the operator reaches files, storage, or unchecked memory."
        hint = "Compute the result outside the compiled model."
        raise UnsupportedOperatorError(message, hint=hint, operators=refused)
    members: dict[str, Any] = {PROGRAM_MEMBER: json.dumps(program.structure()).encode()}
    members |= {f"bodies/{body}.json": json.dumps(data).encode() for body, data in bodies.items()}
    members[CONSTANTS_MEMBER] = save({key: value.contiguous() for key, value in program.constants.items()})
    members |= members_of(kernels_of(program))
    if weights is not None:
        members[WEIGHTS_MEMBER] = weights
    write_neff(
        path,
        members,
        name=name,
        target=target.name,
        core_version=target.core.generation,
        compiler_version=COMPILER_VERSION,
        metadata=metadata,
    )


def read_program(neff: Neff) -> Program:
    """Rebuild the program of an open NEFF."""
    from safetensors import SafetensorError

    try:
        return _read(neff)
    except ArtifactError:
        raise
    except (*_BROKEN, SafetensorError) as error:
        problem = f"{type(error).__name__}: {error}"
        message = f"The program in {neff.path} is broken ({problem})."
        raise ArtifactError(message, hint=_EXPORT_AGAIN, path=str(neff.path), error=problem) from error


def _read(neff: Neff) -> Program:
    from safetensors.torch import load

    data = json.loads(bytes(neff.read(PROGRAM_MEMBER)))
    if data["ir_version"] > IR_VERSION:
        message = f"{neff.path} has IR version {data['ir_version']}, but this package reads version {IR_VERSION}."
        hint = "Upgrade optimum-neuron-sim, or export the model again."
        raise FormatVersionError(message, hint=hint, path=str(neff.path), ir_version=data["ir_version"])
    read_kernels(neff)
    subprograms = {name: _read_subprogram(neff, name) for name in data["subprograms"]}
    program = Program(
        graphs={name: graph_from_dict(graph) for name, graph in data["graphs"].items()},
        subprograms=subprograms,
        weights={name: spec_from_dict(spec) for name, spec in data["weights"].items()},
        states={name: spec_from_dict(spec) for name, spec in data["states"].items()},
        constants=load(bytes(neff.read(CONSTANTS_MEMBER))),
    )
    for name, graph in program.graphs.items():
        for misfit in misfits(vars(graph), _GRAPH, f"graphs.{name}"):
            raise ValueError(str(misfit))
    return verify(program, after="reading")


def _read_subprogram(neff: Neff, name: str) -> Subprogram:
    text = bytes(neff.read(f"bodies/{name}.json"))
    key = name, hashlib.sha256(text).digest()
    subprogram = _in_use.get(key)
    if subprogram is None:
        subprogram = _in_use[key] = _rebuilt(neff, name, json.loads(text))
    return subprogram


def _rebuilt(neff: Neff, name: str, body: dict[str, Any]) -> Subprogram:
    # Before anything is called, be it on fake tensors.
    if refused := not_allowed(node["op"] for node in body["nodes"]):
        message = f"{neff.path} calls {', '.join(refused)}, which the compiler never writes: the file may be forged."
        hint = "Do not use it; export the model yourself."
        raise ArtifactError(message, hint=hint, operators=refused, subprogram=name)
    subprogram = make_subprogram(body_from_dict(body))
    if subprogram.name != name:
        # Host code is kept by these names, so a wrong one would replace the code of another model.
        message = f"Subgraph {name} of {neff.path} was altered: its content is {subprogram.name}."
        raise ArtifactError(message, hint=_EXPORT_AGAIN, subprogram=name)
    return subprogram


_HOST = re.compile(
    r"adaptive_max_pool\dd_backward|angle|(bartlett|blackman|hamming|kaiser)_window|bincount|binomial|conv_tbc|cummax"
    r"|cummin|equal|fft_r?fftfreq|fractional_max_pool\dd|grid_sampler_3d|histogram|logcumsumexp|masked_select|nonzero"
    r"|poisson|polygamma|put|random|range|special_\w+|unique_\w+|view_as_(complex|real)|_ctc_loss|_linalg_eigvals"
    r"|_logcumsumexp|_masked_softmax|_standard_gamma|_unique2?"
)
"""Operators that `allow_host_ops` can send to the host although they have no rule and no decomposition."""

_UNSAFE = re.compile(
    r"from_file|set|set_data|data|resize\w*|pin_memory|_unsafe_\w+|_?sparse_\w+|to_sparse\w*|to_mkldnn\w*|fbgemm_\w+"
    r"|_wrapped_\w+|quantized_\w+|choose_qparams\w*|_(add|remove)_batch_dim|_unpack_dual|_test_\w+|get_gradients"
    r"|requires_grad|retain_grad|flatten_dense_tensors|unflatten_dense_tensors"
)
"""Operators that torch decomposes or composes, but which reach storage, pointers, autograd, or unchecked indices."""

_UNCHECKED = frozenset({"aten._unsafe_index_put"})
"""Operators with a rule that trust the indices that they are given."""


def is_allowed(op: str) -> bool:
    """Return whether a stored graph may call an operator, with or without overload, such as "aten.add.Tensor"."""
    name = base_name(op)
    if name in known_ops():
        return name not in _UNCHECKED
    namespace, _, packet = name.partition(".")
    if namespace != "aten" or _UNSAFE.fullmatch(packet):
        return False
    return _HOST.fullmatch(packet) is not None or name in _composed()


def not_allowed(ops: Iterable[Any]) -> list[str]:
    """Return the operators among `ops` that a stored graph may not call, sorted; "getitem" picks a result and may."""
    return sorted({str(op) for op in ops if op != "getitem" and not is_allowed(str(op))})


@functools.cache
def _composed() -> frozenset[str]:
    """Operators that torch makes of other operators, in Python or in C++."""
    from ..upstream.torch import decomposition_table, dispatch_get_registrations_for_dispatch_key

    composite = dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    names = {str(op) for op in decomposition_table} | {name.replace("::", ".") for name in composite}
    return frozenset(map(base_name, names))
