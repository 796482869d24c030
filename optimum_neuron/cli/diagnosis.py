"""Judges a machine: findings, consequences, and remedies. Pure: `machine.py` does the looking.

>>> from optimum_neuron.cli.diagnosis import Finding, overall
>>> overall([Finding(check="python", verdict="ok", found="3.11.7", consequence="supported")])
'ok'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from ..base.wording import size
from .machine import CORE_PACKAGES, SDK_PACKAGE, VENDOR_PACKAGES, Folder, Machine, normalized

Level = Literal["ok", "warn", "fail"]

MIN_FREE_BYTES = 256 * 2**20
"""Less free space than this on the disk of a cache folder is a failure."""
LOW_FREE_BYTES = 5 * 2**30
"""Less free space than this is worth a warning."""
LOW_MEMORY_BYTES = 2 * 2**30
"""Less available memory than this is worth a warning."""
_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
"""CPU flags worth naming, as Linux spells them."""
_NO_VECTORS = ("DEFAULT", "NO AVX")
"""torch's name for an x86 CPU without AVX2."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One row of the diagnosis."""

    check: str
    verdict: Level
    """ok, warn (works, but less well) or fail (does not work)."""
    found: str
    consequence: str
    remedy: str = ""
    """Remedy; empty if nothing needs to be done."""


def judge(machine: Machine) -> list[Finding]:
    """Judge everything that was found on a machine, in a fixed order."""
    return [
        *_judge_python(machine),
        *_judge_packages(machine),
        _judge_vendor(machine),
        *_judge_torch(machine),
        *_judge_compiler(machine),
        *_judge_cpu(machine),
        _judge_memory(machine),
        *(_judge_folder(folder) for folder in machine.folders),
        _judge_settings(machine),
        *_judge_unused(machine),
    ]


def overall(findings: Iterable[Finding]) -> Level:
    """Return the worst verdict of the findings."""
    verdicts = {finding.verdict for finding in findings}
    return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"


def _ok(check: str, found: str, consequence: str) -> Finding:
    return Finding(check, "ok", found, consequence)


def _warn(check: str, found: str, consequence: str, remedy: str) -> Finding:
    return Finding(check, "warn", found, consequence, remedy)


def _fail(check: str, found: str, consequence: str, remedy: str) -> Finding:
    return Finding(check, "fail", found, consequence, remedy)


def _judge_python(machine: Machine) -> list[Finding]:
    from packaging.specifiers import SpecifierSet

    if machine.distribution is None:
        unknown = "supported versions are unknown: they are part of the installed metadata"
        return [
            _warn("installation", "runs from a source folder", unknown, "pip install -e . in the source folder"),
            _ok("python", machine.python, "no range to compare with"),
        ]
    required = machine.requires_python
    if SpecifierSet(required).contains(machine.python, prereleases=True):
        return [_ok("python", machine.python, f"supported ({required})")]
    remedy = f"make a virtual environment with Python {required}"
    return [_fail("python", machine.python, f"not supported, needed is {required}", remedy)]


def _judge_packages(machine: Machine) -> list[Finding]:
    if machine.distribution is None:
        return [_judge_package(machine, name, "", optional=False) for name in CORE_PACKAGES]
    from packaging.requirements import Requirement

    findings = []
    for requirement in map(Requirement, machine.requirements):
        name, required = normalized(requirement.name), str(requirement.specifier)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            findings.append(_judge_package(machine, name, required, optional=False))
        elif name in machine.packages and name != normalized(machine.distribution):
            finding = _judge_package(machine, name, required, optional=True)
            findings += [finding] if finding.verdict != "ok" else []
    return findings


def _judge_package(machine: Machine, name: str, required: str, *, optional: bool) -> Finding:
    from packaging.specifiers import SpecifierSet

    version = machine.packages.get(name)
    needed = f"needed is {required}" if required else "any version will do"
    remedy = f"pip install '{name}{required}'"
    if version is None:
        return _fail(name, "not installed", needed, remedy)
    if SpecifierSet(required).contains(version, prereleases=True):
        return _ok(name, version, f"supported ({required})" if required else "no range to compare with")
    return (_warn if optional else _fail)(name, version, f"not supported, {needed}", remedy)


def _judge_vendor(machine: Machine) -> Finding:
    value = [f"{name} {machine.packages[name]}" for name in VENDOR_PACKAGES if name in machine.packages]
    if not value:
        return _ok("AWS Neuron SDK", "not installed", "not needed: simulated")
    if SDK_PACKAGE not in machine.packages:
        return _ok("AWS Neuron SDK", ", ".join(value), "not used: this package simulates beside it")
    clash = f"{SDK_PACKAGE} is installed too, and both own the same import names"
    return _fail("AWS Neuron SDK", ", ".join(value), clash, f"pip uninstall {SDK_PACKAGE}, or simulate in another venv")


def _judge_torch(machine: Machine) -> list[Finding]:
    from packaging.requirements import Requirement

    if not machine.torch_complaint:
        return []
    consequence = "nothing can be compiled or run; compiler and CPU were not examined"
    torch = next((need for need in machine.requirements if normalized(Requirement(need).name) == "torch"), "torch")
    remedy = f"pip install --force-reinstall '{torch}'"
    return [_fail("import torch", machine.torch_complaint, consequence, remedy)]


def _judge_compiler(machine: Machine) -> list[Finding]:
    check, compiler = "C++ compiler", machine.compiler
    if machine.torch_complaint:
        return []
    if compiler is not None and not compiler.complaint:
        return [_ok(check, compiler.version, "-O1, -O2 and -O3")]
    install = "apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Amazon Linux), xcode-select --install (macOS)"
    if compiler is None:
        return [_warn(check, "none", "every level runs as -O1: -O2 and -O3 translate generated C++", install)]
    consequence = "only -O1 works: this compiler cannot translate a small program"
    remedy = f"{install}, or set CXX to a compiler that works"
    return [_warn(check, f"{compiler.version}: {compiler.complaint}", consequence, remedy)]


def _judge_cpu(machine: Machine) -> list[Finding]:
    code = machine.host_code
    if code is None:
        return []
    flags = [name for name in _FEATURES if name in (machine.cpu_features or ())]
    value = f"{machine.num_cpus} x {machine.cpu}, {', '.join(flags) or code.isa}"
    consequence = "bf16 matmuls of many rows are upcast to fp32: no bf16 units"
    if code.has_bf16_dot:
        consequence = "bf16 matmuls of many rows run on the CPU's bf16 units"
    if code.isa in _NO_VECTORS and machine.cpu in ("x86_64", "AMD64"):
        remedy = "use a machine with AVX2 or newer, or 64-bit ARM"
        return [_warn("CPU", value, f"{consequence}; slow without vector units", remedy)]
    return [_ok("CPU", value, consequence)]


def _judge_memory(machine: Machine) -> Finding:
    available = machine.memory_available_bytes
    if available is None:
        return _ok("memory", "unknown", "this system does not tell")
    value = f"{size(available)} available"
    if available < LOW_MEMORY_BYTES:
        remedy = "close other programs, raise the container's limit, or take a smaller model"
        return _warn("memory", value, "the system may end a large export (exit code 137 or -9)", remedy)
    return _ok("memory", value, "weights must fit into it")


def _judge_folder(folder: Folder) -> Finding:
    check = folder.purpose
    if folder.free_bytes is None:
        return _ok(check, folder.location, "remote, not examined here: optimum-cli neuron cache status asks it")
    variable = "NEURON_COMPILE_CACHE_URL" if check == "compile cache" else "OPTIMUM_NEURON_HOME"
    move = f"set {variable} to a folder elsewhere"
    if folder.complaint and check == "compile cache":
        consequence = "entries can be read; compiled models go into the caches of this package instead"
        return _warn(check, f"{folder.location}: {folder.complaint}", consequence, move)
    if folder.complaint:
        return _fail(check, f"{folder.location}: {folder.complaint}", "nothing can be written there", move)
    value = f"{folder.location}, {size(folder.free_bytes)} free"
    free_up = f"optimum-cli neuron cache prune --older_than_days 30, or {move}"
    if folder.free_bytes < MIN_FREE_BYTES:
        return _fail(check, value, "the disk is full", free_up)
    if folder.free_bytes < LOW_FREE_BYTES:
        return _warn(check, value, "a few compiled models fill the disk", free_up)
    return _ok(check, value, "writable")


def _judge_settings(machine: Machine) -> Finding:
    if complaints := " ".join(machine.setting_complaints):
        return _fail("environment", complaints, "what reads it stops with an error", "change or unset the variable")
    value = ", ".join(f"{name}={value}" for name, value in machine.settings.items())
    return _ok("environment", value or "nothing set", "in place of the defaults" if value else "defaults")


def _judge_unused(machine: Machine) -> list[Finding]:
    return [
        _warn(name, "set", f"no effect here: {consequence}", f"unset {name}, if another program does not need it")
        for name, consequence in machine.unused_settings.items()
    ]
