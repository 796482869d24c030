"""Host code that several threads run at once, for copies of a program on several cores.

torch's binding of compiled packages keeps Python's lock during a run, and a package has one runner, so threads would
take turns. Here the library inside a package is called through AOTInductor's C interface, by ctypes, which lets go of
the lock. A call costs some microseconds more, so programs on one core stay with the binding.

    host = concurrent_host(lower(program, optlevel="2"), num_threads=2)

Source: torch 2.13, torch/csrc/inductor/aoti_runtime/interface.h; that the binding holds the lock: pytorch issue 197516.
"""

from __future__ import annotations

import ctypes
import dataclasses
import tempfile
import weakref
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .aten import HostFunction
from .choose import probe_cpu
from .handles import Handle, handles_of, tensors_of
from .lower import HostCode
from .store import package_path

if TYPE_CHECKING:
    import torch


def concurrent_host(host: HostCode, num_threads: int, root: Path | None = None) -> HostCode:
    """Return host code that as many threads may call at once, and run at once.

    Bodies that run operator by operator do so already: each operator lets go of the lock.

    Args:
        host: what `lower` made, on this machine.
        num_threads: calls that run at the same time; more wait for one of them.
        root: folder of the host-code store.
    """
    functions: dict[str, HostFunction] = dict(host.functions)
    for name, choice in host.choices.items():
        if choice.value != "aten":
            path = package_path(name, choice.value, probe_cpu(), root, host.preparations.of_subprogram.get(name, ()))
            functions[name] = load_concurrent(path, num_threads) or host.functions[name]
    return dataclasses.replace(host, functions=functions)


def load_concurrent(path: Path, num_threads: int) -> HostFunction | None:
    """Return a function of a package, or None where an operator in it needs torch's binding, which takes turns.

    Raises:
        RuntimeError: the library cannot be loaded.
    """
    with zipfile.ZipFile(path) as package, tempfile.TemporaryDirectory(prefix="optimum-neuron-") as folder:
        (member,) = (name for name in package.namelist() if name.endswith(".so"))
        # The list of operators without a C interface of their own, which the binding's executor calls.
        if f"{member.removesuffix('.so')}.json" in package.namelist():
            return None
        # The loader maps the file, which may go then.
        return _Library(ctypes.CDLL(package.extract(member, folder)), num_threads).run


class _Library:
    """A compiled body with as many runners as threads may call it."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self._library = library
        library.AOTInductorModelContainerRun.argtypes = [
            Handle,
            ctypes.POINTER(Handle),
            ctypes.c_size_t,
            ctypes.POINTER(Handle),
            ctypes.c_size_t,
            Handle,
            Handle,
        ]
        self._handle, count = Handle(), ctypes.c_size_t()
        self._check(
            library.AOTInductorModelContainerCreateWithDevice(
                ctypes.byref(self._handle), ctypes.c_size_t(num_threads), b"cpu", None
            )
        )
        weakref.finalize(self, library.AOTInductorModelContainerDelete, self._handle).atexit = False
        self._check(library.AOTInductorModelContainerGetNumOutputs(self._handle, ctypes.byref(count)))
        self._num_outputs = count.value

    def run(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the body; mutated arguments change in place."""
        # The callee takes the inputs' handles over, and gives those of the outputs away.
        inputs = handles_of(arguments)
        outputs = (Handle * self._num_outputs)()
        self._check(
            self._library.AOTInductorModelContainerRun(
                self._handle,
                (Handle * len(inputs))(*inputs),
                len(inputs),
                outputs,
                self._num_outputs,
                None,
                None,
            )
        )
        return tensors_of(outputs)

    def _check(self, status: int) -> None:
        if status:
            message = ctypes.c_char_p()
            self._library.AOTInductorGetLastError(ctypes.byref(message))
            raise RuntimeError((message.value or b"host code failed without a message").decode())
