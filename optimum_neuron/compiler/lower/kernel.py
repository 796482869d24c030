"""A hand-written kernel in C++: a torch operator, and the C function that Inductor's code calls instead.

It is compiled once for each torch and kind of CPU. Code that calls it looks its function up when it is loaded, so the
kernel is loaded before. The kernels are `attention/`, `block_attention/`, `few_rows/`, `panels/`, `quantized/`, and
`winograd/`; they include headers of `headers/`.

    KERNEL = HostKernel(title="attention on the host", operator=ATTENTION, arguments=(...), source=..., is_in=is_in)
    KERNEL.load(probe_cpu().isa)
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.native import NativeLibrary
from ...files.shared_objects import find
from .handles import Handle

if TYPE_CHECKING:
    import torch

    from ...upstream.torch import OpOverload
    from .choose import CpuFeatures

TARGET_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
"""Compiler flags of the vector extensions that kernels were measured with, by torch's names."""

_HEADERS = Path(__file__).with_name("headers")

_TYPES = {
    "AtenTensorHandle": Handle,
    "AtenTensorHandle*": ctypes.POINTER(Handle),
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HostKernel:
    """A C++ file with one C function."""

    title: str
    """What it computes, for messages."""
    operator: OpOverload
    """The operator that it implements."""
    arguments: tuple[str, ...]
    """Type and name of each argument in C; the last one is the result."""
    source: Path
    is_in: Callable[[torch.fx.GraphModule, CpuFeatures], bool]
    """Whether host code of a body may call it."""
    flags: tuple[str, ...] = ()
    """More flags of the compiler."""

    @property
    def function(self) -> str:
        """The name that Inductor gives to the C function of the operator."""
        return f"aoti_torch_cpu_{self.operator._schema.name.partition('::')[2]}"

    @property
    def c_function(self) -> dict[Any, list[str]]:
        """The operator and how C++ declares its function; otherwise the call would go through the dispatcher."""
        return {self.operator: [f"AOTITorchError {self.function}({', '.join(self.arguments)})"]}

    def is_called(self, text: str) -> bool:
        """Return whether C++ calls the kernel; Inductor declares it in every file."""
        ((declaration,),) = self.c_function.values()
        return text.count(self.function) > text.count(declaration)

    def library(self, isa: str) -> NativeLibrary:
        """Return the library for a vector extension, as torch names it; for others the compiler's default."""
        # Contraction makes one instruction of a product and its sum; it assumes nothing about infinities.
        flags = ("-O3", "-ffp-contract=fast", *TARGET_FLAGS.get(isa, ()), *self.flags)
        return NativeLibrary(title=self.title, source=self.source, folder="host", flags=flags, headers=_HEADERS)

    def is_built(self, isa: str) -> bool:
        """Return whether the library is in the cache."""
        return find(self.library(isa).record()) is not None

    @functools.cache  # noqa: B019  # kernels are constants of modules
    def load(self, isa: str) -> Any:
        """Return the C function; the first call builds it if need be, and makes it known to code loaded later."""
        library = ctypes.CDLL(str(self.library(isa).ensure_built()), mode=ctypes.RTLD_GLOBAL)
        function = getattr(library, self.function)
        function.argtypes = [_TYPES[argument.rpartition(" ")[0]] for argument in self.arguments]
        return function
