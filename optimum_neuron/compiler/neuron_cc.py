"""Flags of neuron-cc, the compiler of Inf1, as `compiler_args=` of `torch.neuron.trace` and the command bring them.

They decide how float32 is computed and over how many cores a program is divided; the rest has no effect here, and a
warning says so. Flags of neuronx-cc, the compiler of later chips, are refused with the flag that does the same here.
Source of names, values and defaults: Neuron docs, Neuron compiler CLI Reference Guide (neuron-cc).

    >>> from optimum_neuron.compiler.neuron_cc import parse_neuron_cc
    >>> flags = parse_neuron_cc(["--neuroncore-pipeline-cores", "4", "--fast-math", "none"])
    >>> flags.pipeline_cores, flags.auto_cast, flags.auto_cast_type
    (4, 'matmul', 'bf16')
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from ..base.core import AutoCast, AutoCastType
from ..errors import ConfigError, nearest
from ..hardware import TARGETS

CASTS: Mapping[str, tuple[AutoCast, AutoCastType]] = {
    "all": ("all", "bf16"),
    "all-fp16": ("all", "fp16"),
    "matmult": ("matmul", "bf16"),
    "matmult-bf16": ("matmul", "bf16"),
    "matmult-fp16": ("matmul", "fp16"),
}
"""Values of --fp32-cast; those of --fast-math have "fp32-cast-" in front. The difference of "matmult" and
"matmult-bf16" is in transposes, which lose nothing here."""

_DEFAULT: tuple[AutoCast, AutoCastType] = (TARGETS["inf1"].auto_cast, "bf16")
"""What --fast-math all does too."""
_LAYOUTS = ("fast-relayout", "no-fast-relayout")
FAST_MATH = ("all", "none", *_LAYOUTS, *(f"fp32-cast-{name}" for name in CASTS))
"""Values of --fast-math, of which several may be given."""

FRAMEWORKS = ("TENSORFLOW", "MXNET", "XLA")
"""Values of --framework."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "--neuroncore-pipeline-cores": (),
    "--fast-math": FAST_MATH,
    "--fp32-cast": tuple(CASTS),
    "--framework": FRAMEWORKS,
    "--io-config": (),
    "--output": (),
    "--verbose": (),
    "--workdir": (),
    "--log-dir": (),
}
"""Flags with a value, and the values allowed; an empty list allows any."""
SWITCHES = (
    "--enable-saturate-infinity",
    "--enable-fast-loading-neuron-binaries",
    "--enable-fast-context-switch",
    "--extract-weights",
    "--static-weights",
)
ALIASES = {"--num-neuroncores": "--neuroncore-pipeline-cores"}

_OF_LATER_CORES = ("tf32", "fp8")
"""Dtypes that float32 is cast to on later cores only."""

_INEFFECTIVE: Mapping[str, str] = {
    "--framework": "torch.neuron.trace hands the graph over",
    "--io-config": "the example inputs give shapes and dtypes",
    "--output": "the NEFF of a segment is in compiler_workdir",
    "--workdir": "compiler_workdir names the folder",
    "--log-dir": "the log goes to the logger 'Neuron'",
    "--enable-saturate-infinity": "infinities stay infinite",
    "--enable-fast-loading-neuron-binaries": "NEFFs are never compressed",
    "--enable-fast-context-switch": "switching between simulated models costs nothing",
    "--extract-weights": "separate_weights=True keeps weights outside of the NEFF",
    "--static-weights": "weights never change while a model is loaded",
}
"""Accepted flags that change nothing here, and why; --verbose is what every trace passes."""

OF_NEURONX_CC: Mapping[str, str] = {
    "--auto-cast": "pass --fast-math",
    "--auto-cast-type": "pass --fast-math fp32-cast-all-fp16",
    "--target": "remove it: neuron-cc compiles for inf1",
    "--optlevel": "remove it: neuron-cc has one level",
    "-O": "remove it: neuron-cc has one level",
    "--model-type": "remove it: neuron-cc takes every model alike",
    "--logical-nc-config": "remove it: a core of inf1 is one physical core",
    "--lnc": "remove it: a core of inf1 is one physical core",
    "-lnc": "remove it: a core of inf1 is one physical core",
    "--distribution-strategy": "pass --neuroncore-pipeline-cores",
    "--enable-mixed-precision-accumulation": "remove it: products accumulate in float32",
    "--disable-mixed-precision-accumulation": "remove it: products accumulate in float32",
}
"""Flags of neuronx-cc, and what to do for neuron-cc."""
OF_NEURON_CC: Mapping[str, str] = {
    "--fast-math": "pass --auto-cast",
    "--fp32-cast": "pass --auto-cast",
    "--neuroncore-pipeline-cores": "remove it: later cores have memory for whole models",
    "--num-neuroncores": "remove it: later cores have memory for whole models",
    "--io-config": "remove it: the example inputs give shapes and dtypes",
}
"""Flags of neuron-cc, and what to do for neuronx-cc."""

NEURON_CC_ARITY: Mapping[str, str | int] = {
    **dict.fromkeys(OF_NEURONX_CC, "*"),
    **dict.fromkeys((*VALUES, *ALIASES), 1),
    **dict.fromkeys(SWITCHES, 0),
    "--fast-math": "+",
}
"""Values that a command line has for each flag, as `argparse` counts them; flags of neuronx-cc too, for their error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronCcFlags:
    """Options of one compile for Inf1."""

    pipeline_cores: int = 1
    """--neuroncore-pipeline-cores: cores that share a program."""
    auto_cast: AutoCast = _DEFAULT[0]
    """Which float32 operators are rounded."""
    auto_cast_type: AutoCastType = _DEFAULT[1]
    """Dtype that they are rounded to."""
    names_cast: bool = False
    """Whether a flag says so; otherwise it is the default."""
    ineffective: tuple[str, ...] = ()
    """Flags without an effect here, each with its reason."""
    words: tuple[str, ...] = ()
    """As given."""


def parse_neuron_cc(arguments: str | Sequence[str] | None) -> NeuronCcFlags:
    """Read flags from one text or from a list of words."""
    words = shlex.split(arguments) if isinstance(arguments, str) else [str(word) for word in arguments or ()]
    values, problems = _values(words)
    problems += _conflicts(values)
    cores = (values.get("--neuroncore-pipeline-cores") or ["1"])[-1]
    if not cores.isdecimal() or int(cores) < 1:
        problems.append(f"--neuroncore-pipeline-cores is {cores!r}, which is no number of cores")
    if problems:
        message = f"compiler_args has flags that neuron-cc does not accept ({'; '.join(problems)})."
        known = ", ".join((*VALUES, *SWITCHES))
        details = {"option": "compiler_args", "value": shlex.join(words), "problems": problems}
        raise ConfigError(message, hint=f"Use {known}.", **details)
    cast = _cast(values)
    ineffective = [f"{flag} ({_INEFFECTIVE[flag]})" for flag in values if flag in _INEFFECTIVE]
    return NeuronCcFlags(
        pipeline_cores=int(cores),
        auto_cast=(cast or _DEFAULT)[0],
        auto_cast_type=(cast or _DEFAULT)[1],
        names_cast=cast is not None,
        ineffective=tuple(ineffective),
        words=tuple(words),
    )


def _values(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each flag, all of the last time that it is given, and what is wrong with others."""
    values: dict[str, list[str]] = {}
    problems: list[str] = []
    rest = [part for word in words for part in _parts(word)]
    position = 0
    while position < len(rest):
        name = rest[position]
        flag, position = ALIASES.get(name, name), position + 1
        taken: list[str] = []
        several = flag == "--fast-math"
        while flag in VALUES and position < len(rest) and not rest[position].startswith("-") and (several or not taken):
            taken.append(rest[position])
            position += 1
        if flag in SWITCHES:
            values[flag] = []
        elif flag not in VALUES:
            problems.append(_unknown(name))
            while name.startswith("-") and position < len(rest) and not rest[position].startswith("-"):
                position += 1  # values of a flag that is unknown
        elif not taken:
            problems.append(f"{name} lacks its value")
        else:
            values[flag] = taken
            wrong = [value for value in taken if VALUES[flag] and value not in VALUES[flag]]
            problems += [_wrong_value(name, value, VALUES[flag]) for value in wrong]
    return values, problems


def _parts(word: str) -> list[str]:
    """A word of a command line; flag and value may be joined by "=" or, in a list, by a space."""
    name, equals, value = word.partition("=")
    if word.startswith("-") and equals:
        return [name, value]
    return shlex.split(word) if word.startswith("-") else [word]


def _wrong_value(name: str, value: str, allowed: Sequence[str]) -> str:
    dtype = next((dtype for dtype in _OF_LATER_CORES if dtype in value), "")
    if dtype and name != "--framework":
        return f"{name} is {value!r}, but NeuronCore-v1 has no {dtype}: it casts float32 to bf16 or fp16"
    return f"{name} is {value!r}{nearest(value, allowed)}, allowed are {', '.join(allowed)}"


def _unknown(name: str) -> str:
    short = "-O" if name[:2] == "-O" else name
    if short in OF_NEURONX_CC:
        return f"{name} is a flag of neuronx-cc, the compiler of later chips; here, {OF_NEURONX_CC[short]}"
    return f"{name!r} is unknown{nearest(name, (*VALUES, *SWITCHES, *ALIASES))}"


def _conflicts(values: Mapping[str, Sequence[str]]) -> list[str]:
    chosen = values.get("--fast-math", ())
    casts = [value for value in chosen if value.startswith("fp32-cast-")]
    return [
        f"--fast-math has {' and '.join(group)}, which exclude each other"
        for group in (casts, [v for v in chosen if v in ("all", "none")], [v for v in chosen if v in _LAYOUTS])
        if len(set(group)) > 1
    ]


def _cast(values: Mapping[str, Sequence[str]]) -> tuple[AutoCast, AutoCastType] | None:
    """Return what flags name; None for nothing.

    The older --fp32-cast has precedence, as documented; a cast named beside "all" or "none" overrides it.
    """
    if older := values.get("--fp32-cast"):
        return CASTS[older[-1]]
    chosen = values.get("--fast-math", ())
    named = [value.removeprefix("fp32-cast-") for value in chosen if value.startswith("fp32-cast-")]
    if named or "none" in chosen:
        return CASTS[named[-1] if named else "matmult-bf16"]
    return _DEFAULT if "all" in chosen else None
