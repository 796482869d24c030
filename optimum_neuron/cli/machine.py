"""Examines this machine for `optimum-cli neuron doctor`; draws no conclusions (see `diagnosis.py`).

The host-code rows come from `compiler/lower/choose.py`, which decides by the same probes. Everything else needs
only the standard library, so that a broken installation, even of torch, can be examined too. Nothing is left
on disk.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import env, startup
from ..compiler import parse_flags
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..compiler.lower import CpuFeatures

CORE_PACKAGES = ("torch", "transformers", "optimum", "accelerate", "safetensors", "huggingface-hub", "numpy", "rich")
"""Looked at even where this package was not installed and its requirements are unknown."""
VENDOR_PACKAGES = (
    "libneuronxla",
    "neuronx-cc",
    "neuronx-distributed",
    "neuronx-distributed-inference",
    "optimum-neuron",
    "torch-neuron",
    "torch-neuronx",
)
"""Distributions that need the hardware."""
SDK_PACKAGE = "optimum-neuron-sim-sdk"
"""Our second distribution: import names that the vendor's wheels have too."""
_TEST_PROGRAM = "#include <cmath>\n#include <vector>\nint main() { return std::vector<int>(1).empty(); }\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CppCompiler:
    """The C++ compiler that host code is made with."""

    version: str
    """First line of its `--version`."""
    complaint: str = ""
    """Empty when it translates a small program (with OpenMP on Linux), else why not."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder that caches are kept in."""

    purpose: str
    location: str
    """Path or URL."""
    free_bytes: int | None
    """Free space of its disk; None for a URL."""
    complaint: str = ""
    """Why nothing can be written there; empty when writing works or for a URL."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about a machine."""

    python: str
    """Version of the interpreter."""
    distribution: str | None
    """Name this package is installed under, or None when it runs from a source folder."""
    requires_python: str
    """Versions of Python our distribution asks for; empty when it names none or is not installed."""
    requirements: tuple[str, ...]
    """Requirements of our distribution, as written in its metadata."""
    packages: Mapping[str, str]
    """Installed versions by normalized distribution name."""
    torch_complaint: str
    """Why torch cannot be imported; empty when it can."""
    compiler: CppCompiler | None
    """The C++ compiler, if any; None too when torch, which knows where to look, cannot be imported."""
    host_code: CpuFeatures | None
    """CPU features that host code depends on; None when torch cannot be imported."""
    cpu: str
    """Architecture as the system names it, for example "x86_64"."""
    cpu_features: frozenset[str] | None
    """Feature flags as Linux names them; None where the system does not tell."""
    num_cpus: int
    """CPUs this process may use."""
    memory_available_bytes: int | None
    """Memory a new program can have, limits of a container included; None where the system does not tell."""
    folders: tuple[Folder, ...]
    settings: Mapping[str, str]
    """Environment variables that are set and read here, verbatim."""
    setting_complaints: tuple[str, ...]
    """Environment variables whose value cannot be used."""
    unused_settings: Mapping[str, str]
    """Environment variables that are set for Neuron but ignored here, with the reason for each."""


def examine() -> Machine:
    """Look at this machine; takes about as long as importing torch."""
    distribution, requires_python, requirements = _own_metadata()
    settings, setting_complaints = _settings()
    torch_complaint, compiler, host_code = _host_code()
    return Machine(
        python=platform.python_version(),
        distribution=distribution,
        requires_python=requires_python,
        requirements=requirements,
        packages={normalized(d.name): d.version for d in importlib.metadata.distributions() if d.name},
        torch_complaint=torch_complaint,
        compiler=compiler,
        host_code=host_code,
        cpu=platform.machine(),
        cpu_features=_cpu_features(),
        num_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_available_bytes=_available_memory_bytes(),
        folders=(_folder("compile cache", env.compile_cache_url()), _folder("own caches", str(env.home()))),
        settings=settings,
        setting_complaints=setting_complaints,
        unused_settings=startup.unused(),
    )


def normalized(name: str) -> str:
    """Return the canonical spelling of a distribution name (PEP 503).

    >>> normalized("Torch_NeuronX")
    'torch-neuronx'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _own_metadata() -> tuple[str | None, str, tuple[str, ...]]:
    names = importlib.metadata.packages_distributions().get("optimum_neuron")
    if not names:
        return None, "", ()
    requires_python = importlib.metadata.metadata(names[0]).json.get("requires_python")
    return names[0], str(requires_python or ""), tuple(importlib.metadata.requires(names[0]) or ())


def _settings() -> tuple[dict[str, str], tuple[str, ...]]:
    checks: tuple[Callable[[], object], ...] = (
        env.adaptive_eager,
        env.auto_cast_type,
        env.debug,
        env.inspect_folder,
        env.local_rank,
        env.local_world_size,
        env.log_level,
        env.log_location,
        env.logical_nc_config,
        env.num_cores,
        env.numerics,
        env.progress_disabled,
        env.stochastic_rounding,
        env.stochastic_rounding_seed,
        env.validate_hash,
        env.visible_cores,
        lambda: parse_flags((), defaults=env.compiler_flags()),
    )
    complaints = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            complaints.append(str(error))
    return env.given(), tuple(complaints)


def _host_code() -> tuple[str, CppCompiler | None, CpuFeatures | None]:
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        return f"{type(error).__name__}: {error}".split("\n")[0], None, None
    from ..compiler.lower import probe_compiler, probe_cpu

    version = probe_compiler()
    return "", CppCompiler(version=version, complaint=_try_compiler()) if version else None, probe_cpu()


def _try_compiler() -> str:
    from ..upstream.inductor import InvalidCxxCompiler, get_cpp_compiler

    try:
        command = get_cpp_compiler()
    except InvalidCxxCompiler:
        return "Inductor looks for it under another name"
    openmp = ["-fopenmp", "-include", "omp.h"] if sys.platform == "linux" else []
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "test.cpp"), Path(folder, "test.so")
        source.write_text(_TEST_PROGRAM)
        said = _output([command, "-std=c++17", *openmp, "-shared", "-fPIC", str(source), "-o", str(result)])
        return "" if result.exists() else said.strip().split("\n")[0] or "it wrote nothing"


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return done.stdout + done.stderr


def _cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    if not cpuinfo.exists():
        return None
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return frozenset(match.group(1).split()) if match else None


def _available_memory_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    if not meminfo.exists():
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    available = int(match.group(1)) * 1024 if match else None
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if available is not None and limit.exists() and used.exists() and limit.read_text().strip() != "max":
        available = min(available, max(int(limit.read_text()) - int(used.read_text()), 0))
    return available


def _folder(purpose: str, location: str) -> Folder:
    if "://" in location:
        return Folder(purpose=purpose, location=location, free_bytes=None)
    existing = Path(location).absolute()
    while not existing.exists():
        existing = existing.parent
    complaint = ""
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        complaint = error.strerror or str(error)
    return Folder(purpose=purpose, location=location, free_bytes=shutil.disk_usage(existing).free, complaint=complaint)
