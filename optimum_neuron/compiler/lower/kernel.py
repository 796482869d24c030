"""A hand-written kernel in C++: a torch operator, and the C function that Inductor's code calls instead.

It is compiled once for each torch and kind of CPU. Code that calls it looks its function up when it is loaded, so the
kernel is loaded before. The kernels are `attention/`, `block_attention/`, `few_rows/`, `panels/`, `quantized/`, and
`winograd/`; they include headers of `headers/`.

    KERNEL = HostKernel(schema="neuron_host::attention(...) -> Tensor", title="attention on the host", ...)
    KERNEL.operator(query, key, value, None, False, 1.0)
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...files.shared_objects import NativeLibrary, find
from ..custom_operators import define
from .choose import probe_cpu
from .handles import Handle, Handles, tensors_of

if TYPE_CHECKING:
    from ...upstream.torch import OpOverload
    from .choose import CpuFeatures

TARGET_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
"""Compiler flags of the vector extensions that kernels were measured with, by torch's names."""

_HEADERS = Path(__file__).with_name("headers")

_TYPES: dict[str, tuple[str, Any]] = {
    "Tensor": ("AtenTensorHandle", Handle),
    "Tensor?": ("AtenTensorHandle*", ctypes.POINTER(Handle)),
    "bool": ("int32_t", ctypes.c_int32),
    "int": ("int64_t", ctypes.c_int64),
    "float": ("double", ctypes.c_double),
}
"""Type of an operator's argument: what it is in C, and in ctypes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HostKernel:
    """A C++ file with one C function, and the operator that it implements."""

    schema: str
    """Schema of the operator; the C function has its arguments, and the result behind them."""
    title: str
    """What it computes, for messages."""
    shape: Callable[..., torch.Tensor]
    """Checks the arguments, and returns the result without data."""
    source: Path
    is_in: Callable[[torch.fx.GraphModule, CpuFeatures], bool]
    """Whether host code of a body may call it."""
    flags: tuple[str, ...] = ()
    """More flags of the compiler."""
    any_strides: bool = False
    """Whether tensors may have any strides, so that Inductor copies none."""

    @functools.cached_property
    def operator(self) -> OpOverload:
        """The operator, which the first access defines."""
        return define(self.schema, fake=self.shape, run=self.run, any_strides=self.any_strides)

    @functools.cached_property
    def _arguments(self) -> list[tuple[str, str]]:
        return re.findall(r"(Tensor\??|bool|int|float) (\w+)", self.schema)

    @property
    def function(self) -> str:
        """The name that Inductor gives to the C function of the operator."""
        return f"aoti_torch_cpu_{self.schema.partition('::')[2].partition('(')[0]}"

    @property
    def declaration(self) -> str:
        """The C function as C++ declares it."""
        arguments = [f"{_TYPES[kind][0]} {name}" for kind, name in self._arguments]
        return f"AOTITorchError {self.function}({', '.join(arguments)}, AtenTensorHandle* result)"

    def is_called(self, text: str) -> bool:
        """Return whether C++ calls the kernel; Inductor declares it in every file."""
        return text.count(self.function) > text.count(self.declaration)

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
        function.argtypes = [*(_TYPES[kind][1] for kind, _ in self._arguments), ctypes.POINTER(Handle)]
        return function

    def run(self, *arguments: object) -> torch.Tensor:
        """Call the kernel as its operator does."""
        self.shape(*arguments)
        owner = Handles([one for one in arguments if isinstance(one, torch.Tensor)])
        handles, passed, result = iter(owner.array), [], Handle()
        for (kind, _), argument in zip(self._arguments, arguments, strict=True):
            if isinstance(argument, torch.Tensor):
                handle = next(handles)
                passed.append(handle if kind == "Tensor" else ctypes.byref(Handle(handle)))
            else:
                passed.append(argument)
        if self.load(probe_cpu().isa)(*passed, ctypes.byref(result)):
            raise MemoryError(f"{self.title} found no memory")
        return tensors_of([result.value])[0]
