"""Flags of the Neuron compiler's command line, as `compiler_args=` and NEURON_CC_FLAGS bring them.

A flag decides the program, or has no effect here and a warning says so, or is unknown and an error names the nearest
one. Of flags that contradict each other the last one counts. Source of names, values and defaults: Neuron docs, Neuron
Compiler CLI Reference Guide.

    >>> from optimum_neuron.compiler.flags import parse_flags
    >>> parse_flags("--target trn2 --auto-cast=matmult -O1")
    CompilerFlags(target='trn2', auto_cast='matmul', auto_cast_type='bf16', optlevel='1', ..., ineffective=())
"""

from __future__ import annotations

import collections
import dataclasses
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence

from ..base.core import AutoCast, AutoCastType, OptLevel
from ..errors import ConfigError, nearest
from .neuron_cc import OF_NEURON_CC

DOWNCASTS = ("default", "all", "none", "dot", "scatter", "all_reduce", "reduce_scatter", "pow")
"""Values of --implicit-integer-downcast."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "--target": (),
    "--auto-cast": ("none", "matmult", "all"),
    "--auto-cast-type": ("bf16", "fp16", "tf32", "fp8_e4m3"),
    "--optlevel": ("1", "2", "3"),
    "--logical-nc-config": ("1", "2"),
    "--implicit-integer-downcast": DOWNCASTS,
    "--framework": ("XLA",),
    "--model-type": ("generic", "transformer", "unet-inference"),
    "--distribution-strategy": (),
    "--native-int64": ("default", "enabled", "disabled"),
    "--verbose": (),
    "--logfile": (),
    "--temp-dir": (),
    "--output": (),
    "--hbm-scratchpad-page-size": (),
}
"""Flags that take a value, with the values allowed; an empty list allows any."""

SWITCHES = (
    "--enable-mixed-precision-accumulation",
    "--disable-mixed-precision-accumulation",
    "--enable-saturate-infinity",
    "--enable-fast-context-switch",
    "--enable-fast-loading-neuron-binaries",
    "--disable-dge",
)
ALIASES = {
    "-O": "--optlevel",
    "-lnc": "--logical-nc-config",
    "--lnc": "--logical-nc-config",
    "--compile_workdir": "--temp-dir",
}

_INEFFECTIVE: Mapping[str, str] = {
    "--model-type": "fusions are found in the graph, whatever it is called",
    "--distribution-strategy": "a traced model runs on one core",
    "--native-int64": "64-bit integers are computed as such on the host",
    "--verbose": "what a compile decided is in the NEFF's metadata",
    "--output": "the NEFF is compiler_workdir/graph.neff",
    "--disable-mixed-precision-accumulation": "matmuls accumulate in float32",
    "--enable-saturate-infinity": "infinities stay infinite",
    "--enable-fast-context-switch": "switching between simulated models costs nothing",
    "--enable-fast-loading-neuron-binaries": "NEFFs are never compressed",
    "--disable-dge": "descriptors of DMA are not simulated",
    "--hbm-scratchpad-page-size": "the simulated scratchpad has no pages",
}
"""Accepted flags that change nothing here, and why."""

_INTERNAL = (
    "--internal-",
    "--pipeline",
    "--tensorizer-options",
    "--hlo2tensorizer-options",
    "--experimental-",
    "--dump",
)
"""Beginnings of flags for stages inside the real compiler; a value stands behind "="."""
_INTERNAL_REASON = "it is for a stage inside the real compiler"

KNOWN_FLAGS = (*VALUES, *SWITCHES, *ALIASES)
"""Every flag that is read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilerFlags:
    """Options set by the flags of one compile."""

    target: str | None = None
    """--target; None leaves it to the environment."""
    auto_cast: AutoCast = "none"
    """--auto-cast, where the compiler writes "matmult"."""
    auto_cast_type: AutoCastType = "bf16"
    """--auto-cast-type."""
    optlevel: OptLevel = "2"
    """--optlevel or -O: effort spent on host code."""
    lnc: int | None = None
    """--logical-nc-config, --lnc or -lnc: physical cores in a logical one; None is the target's default."""
    implicit_integer_downcast: tuple[str, ...] = ()
    """--implicit-integer-downcast."""
    logfile: str | None = None
    """--logfile: gets the log of the compile."""
    temp_dir: str | None = None
    """--temp-dir: folder for files that are needed during the compile; None is the system's."""
    ineffective: tuple[str, ...] = ()
    """Flags without an effect here, each with its reason."""

    def warn_ineffective(self, *, stacklevel: int = 2) -> None:
        """Say in one warning which flags change nothing; `stacklevel` is passed to `warnings.warn`."""
        if self.ineffective:
            text = f"compiler flags without an effect here: {'; '.join(self.ineffective)}"
            warnings.warn(text, stacklevel=stacklevel)


def parse_flags(arguments: str | Sequence[str] | None, *, defaults: Sequence[str] = ()) -> CompilerFlags:
    """Read flags from one text or from a list of words.

    Args:
        defaults: words of NEURON_CC_FLAGS, which count where `arguments` do not say otherwise.
    """
    words = shlex.split(arguments) if isinstance(arguments, str) else [str(word) for word in arguments or ()]
    values = {**_values(defaults, "NEURON_CC_FLAGS"), **_values(words, "compiler_args")}
    lnc = values.get("--logical-nc-config")
    fields = {
        "target": values.get("--target"),
        "auto_cast": values.get("--auto-cast", "none").replace("matmult", "matmul"),
        "auto_cast_type": values.get("--auto-cast-type", "bf16"),
        "optlevel": values.get("--optlevel", "2"),
        "lnc": None if lnc is None else int(lnc),
        "logfile": values.get("--logfile"),
        "temp_dir": values.get("--temp-dir"),
    }
    downcasts = values.get("--implicit-integer-downcast", "default").split(",")
    reasons = {flag: _INTERNAL_REASON if flag.startswith(_INTERNAL) else _INEFFECTIVE.get(flag) for flag in values}
    ineffective = [f"{f'{flag} {values[flag]}'.strip()} ({reason})" for flag, reason in reasons.items() if reason]
    return CompilerFlags(
        **fields,  # type: ignore[arg-type]
        implicit_integer_downcast=tuple(kind for kind in downcasts if kind != "default"),
        ineffective=tuple(ineffective),
    )


def arithmetic_options(words: Sequence[str]) -> dict[str, str]:
    """Return `auto_cast`, `auto_cast_type` and `optlevel` as far as words of NEURON_CC_FLAGS set them; warn about flags
    among the words that change nothing.
    """
    values, parsed = _values(words, "NEURON_CC_FLAGS"), parse_flags((), defaults=words)
    parsed.warn_ineffective(stacklevel=4)
    flags = {"auto_cast": "--auto-cast", "auto_cast_type": "--auto-cast-type", "optlevel": "--optlevel"}
    return {name: getattr(parsed, name) for name, flag in flags.items() if flag in values}


def _values(words: Sequence[str], option: str) -> dict[str, str]:
    """Return the last value of each flag; all problems are raised at once."""
    values: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    for flag, value, problem in _flags(words):
        if problem is None:
            values[flag] = value
        else:
            problems.append((flag, problem))
    if problems:
        sentences = [sentence for _, sentence in problems]
        message = f"{option} has flags that neuronx-cc does not accept ({'; '.join(sentences)})."
        details = {"value": shlex.join(words), "flags": [flag for flag, _ in problems], "problems": sentences}
        raise ConfigError(message, hint=f"Use {', '.join(KNOWN_FLAGS)}.", option=option, **details)
    return values


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """Flags with their values ("" for switches), or with a problem in the third place."""
    rest = collections.deque(words)
    while rest:
        word = rest.popleft()
        name, equals, value = word.partition("=")
        if word[:2] == "-O" and not equals and len(word) > 2:
            name, value, equals = "-O", word[2:], "="
        flag = ALIASES.get(name, name)
        if flag in SWITCHES:
            yield flag, "", f"{name} takes no value" if equals else None
        elif flag in VALUES:
            value = value if equals else (rest.popleft() if rest else "")
            yield flag, value, _value_problem(name, value, VALUES[flag])
        elif name.startswith(_INTERNAL):
            while name == "--pipeline" and rest and not rest[0].startswith("-"):
                rest.popleft()  # stages stand behind it as words
            yield name, value, None
        else:
            if name in OF_NEURON_CC and not equals and rest:
                rest.popleft()
            yield name, "", _unknown(name, word)


def _unknown(name: str, word: str) -> str:
    if name in OF_NEURON_CC:
        return f"{name} is a flag of neuron-cc, the compiler of Inf1; here, {OF_NEURON_CC[name]}"
    return f"{word!r} is unknown{nearest(name, KNOWN_FLAGS)}"


def _value_problem(name: str, value: str, allowed: tuple[str, ...]) -> str | None:
    if not value or value.startswith("-"):
        return f"{name} lacks its value"
    wrong = [part for part in value.split(",") if allowed and part not in allowed]
    if wrong or (allowed and "," in value and allowed is not DOWNCASTS):
        return f"{name} is {value!r}{nearest((wrong or [value])[0], allowed)}, allowed are {', '.join(allowed)}"
    return None
