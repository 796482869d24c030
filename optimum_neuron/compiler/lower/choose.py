"""Choose the host code of each subprogram, and say why.

Probing (`probe_cpu`, `probe_compiler`) is separate from deciding (`choose_level`), which is pure. The levels:
"aten" runs the graph operator by operator; "inductor" compiles it ahead of time; "inductor-max" also tries
alternative kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from ...base.core import Choice, OptLevel, Rejected
from ..ir import Subprogram
from ..kernels import kernels_in
from ..rules import product_operands

if TYPE_CHECKING:
    import torch

HostLevel = Literal["aten", "inductor", "inductor-max"]

LIBRARY_ROWS = 32
"""From this many rows on, a bare matmul is the library's work and compiling it gains nothing."""

MAX_STREAMED_ROWS = 4
"""Up to this many rows a matmul is bound by reading the weights; measured break-even on two cores."""

MAX_STREAMED_ROWS_WITH_DOT = 2
"""The same for 16-bit operands where the CPU has dot products of these: 4 rows of 2,048 numbers and 8,192 outputs took
3.8 ms on one core, and 2.4 with oneDNN."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuFeatures:
    """Features of this CPU that change the generated code."""

    isa: str
    """Widest vector extension, as torch names it: "AVX512", "AVX2", "DEFAULT" ..."""
    has_bf16_dot: bool
    """Dot products on bf16 operands in hardware (AVX512_BF16 or AMX)."""
    march: str | None = None
    """Named level of instructions that code is compiled for ("x86-64-v4"); None compiles for this very CPU."""
    extensions: tuple[str, ...] = ()
    """Vector extensions beyond `isa` that Inductor's code uses ("vnni", "amx")."""
    model: str = ""
    """Hash of the CPU's features where code is compiled for this very CPU."""

    def __str__(self) -> str:
        parts = [self.isa.lower(), *self.extensions, "bf16" if self.has_bf16_dot else "", self.march or "", self.model]
        return "-".join(part for part in parts if part)


_LEVELS = {
    "x86-64-v3": ("AVX2", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma3", "lzcnt"}),
    "x86-64-v4": ("AVX512", {"avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl"}),
}
"""Level, its vector extension, and its additions to the level below: x86-64 psABI 1.0, in torch's names."""


@functools.cache
def probe_cpu() -> CpuFeatures:
    """Return the features of this CPU, as torch reports them."""
    import torch

    from ...upstream.torch import is_amx_tile_supported, is_avx512_bf16_supported, is_vnni_supported

    isa, present = torch.backends.cpu.get_cpu_capability(), torch.cpu.get_capabilities()
    wide = isa == "AVX512"
    extensions = {"vnni": wide and is_vnni_supported(), "amx": wide and is_amx_tile_supported()}
    march, model = name_level(isa, platform.machine(), {name for name, value in present.items() if value is True})
    return CpuFeatures(
        isa=isa,
        has_bf16_dot=bool(is_avx512_bf16_supported() or is_amx_tile_supported()),
        march=march,
        extensions=tuple(name for name, value in extensions.items() if value),
        model=model,
    )


def name_level(isa: str, machine: str, features: Collection[str]) -> tuple[str | None, str]:
    """Return the level that code is compiled for, or None and a hash of the CPU's features.

    A named level runs on every CPU that has it, so CPU models that share a home can share code. On other kinds of CPU
    the compiler's own "native" is used, and code belongs to CPUs with the same features.

    Args:
        isa: widest vector extension, as torch names it.
        machine: as `platform.machine()` returns it.
        features: names of the features that the CPU has, as torch spells them.
    """
    if machine not in ("x86_64", "AMD64"):
        return None, hashlib.sha256(" ".join(sorted(features)).encode()).hexdigest()[:8]
    named, required = "x86-64", set[str]()
    for level, (extension, added) in _LEVELS.items():
        required |= added
        if isa in ("AVX2", "AVX512") and required <= set(features):
            named = level
        if extension == isa:
            break
    return named, ""


def max_streamed_rows(dtype: torch.dtype, features: CpuFeatures) -> int:
    """Return up to how many rows of a dtype a matmul multiplies and sums while it reads the weights."""
    return MAX_STREAMED_ROWS_WITH_DOT if dtype.itemsize == 2 and features.has_bf16_dot else MAX_STREAMED_ROWS


@functools.cache
def probe_compiler() -> str | None:
    """First line of the version of the C++ compiler that Inductor calls, or None if no compiler runs."""
    from ...upstream.inductor import InvalidCxxCompiler, get_cpp_compiler

    try:
        command = get_cpp_compiler()
    except InvalidCxxCompiler:
        return None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None


@functools.cache
def compiler_knows_cpu() -> bool:
    """Return whether the C++ compiler takes the flags of this CPU's vector extensions.

    Otherwise, Inductor compiles and loads a probe for each extension, in each process. torch reports what the CPU has,
    so only the compiler may be too old (AMX: GCC 11).
    """
    from ...upstream.inductor import VecAMX, VecAVX512VNNI, get_cpp_compiler
    from ...upstream.torch import is_amx_tile_supported

    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    widest = VecAMX if is_amx_tile_supported() else VecAVX512VNNI
    command = [get_cpp_compiler(), *widest._arch_flags.split(), "-fsyntax-only", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def choose_level(
    subprogram: Subprogram, *, optlevel: OptLevel, compiler: str | None, rare: bool = False, per_token: bool = False
) -> Choice[HostLevel]:
    """Decide how one subprogram runs on the host.

    Args:
        optlevel: "1", "2" or "3", as in `-O2`.
        compiler: the C++ compiler of this machine, or None.
        per_token: a graph of a single token calls it, where each operator's dispatch counts.
    """
    level: HostLevel = "inductor-max" if optlevel == "3" else "inductor"

    def by_operators(reason: str, rejection: str) -> Choice[HostLevel]:
        return Choice(value="aten", reason=reason, rejected=(Rejected(candidate=level, reason=rejection),))

    if kernels_in(subprogram.body):
        return by_operators("an NKI kernel, whose instructions are simulated", "compiles no instructions of a core")
    if optlevel == "1":
        return Choice(value="aten", reason="-O1: no C++ compiler needed, ready at once")
    if compiler is None:
        return by_operators("no C++ compiler on this machine", "needs g++ or clang++ (apt-get install g++)")
    if not per_token and (reason := _library_bound(subprogram)):
        return by_operators(reason, "would spend compile time for no speed")
    if rare and optlevel == "2":
        reason = "only assisted generation and continued prompts call it"
        return by_operators(reason, "-O3 spends the compile time")
    return Choice(value=level, reason=f"-O{optlevel}: fused kernels by {compiler}")


def _library_bound(subprogram: Subprogram) -> str | None:
    """Say why compiling would not help, or return None."""
    products = [node for node in subprogram.body.graph.nodes if product_operands(node)]
    if not products:
        return "no matrix product in it"
    left = [product_operands(node)[0] for node in products]
    rows = min(math.prod(node.meta["val"].shape[:-1]) for node in left)
    # Attention and convolutions gain from the compiled code around them.
    is_matmul = "dot_product" not in str(products[0].target) and "conv" not in str(products[0].target)
    if rows >= LIBRARY_ROWS and len(products) == 1 and is_matmul:
        return f"one matrix product of {rows} rows, which the vendor library does best"
    return None


def has_onednn() -> bool:
    """Return whether torch was built with oneDNN and it is switched on."""
    import torch

    return bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)
