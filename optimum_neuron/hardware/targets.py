"""Compile targets: the instance families, and the features of each.

A target is the compile target of an artifact: "inf2", "trn1", "trn1n", "trn2", "trn3"; "inf1" takes only
single-pass models, text encoder-decoders, and traced models. Whether a full model fits or runs is decided elsewhere.

    >>> from optimum_neuron.hardware import TARGETS
    >>> TARGETS["trn2"].auto_cast_types
    ('bf16', 'fp16', 'tf32', 'fp8_e4m3')
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping

from ..base.core import DTYPE_SIZE_BYTES, AutoCast
from ..errors import ConfigError, UnsupportedDtypeError, invalid_choice
from .instances import INSTANCES
from .specs import ChipSpec, CoreSpec, InstanceSpec, checked_lnc
from .timings import TIMINGS, CoreTiming

AUTO_CAST_DTYPES: Mapping[str, str] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "tf32": "tfloat32",
    "fp8_e4m3": "float8_e4m3",
}
"""The compiler's --auto-cast-type values and their dtypes."""

_NARROWER = {"int64": "int32", "float64": "float32", "float8_e4m3fn": "float8_e4m3"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A family of instances that share one kind of chip and one compiler target.

    Example:
        ```python
        from optimum_neuron.hardware import TARGETS

        trn2 = TARGETS["trn2"]
        assert trn2.logical_cores_per_chip() == 4
        assert trn2.hbm_bytes_per_core() == 24 * 2**30
        assert trn2.supports_dtype("fp8_e4m3") and not TARGETS["trn1"].supports_dtype("fp8_e4m3")
        ```
    """

    name: str
    chip: ChipSpec
    instances: tuple[InstanceSpec, ...]
    """Its sizes, smallest first."""
    asked_for: frozenset[str] = frozenset()
    """Operators that a user asks for although the target leaves them to the CPU, such as "aten::embedding"."""
    not_compilable_because: str | None = None
    """Why it is not a target of every compile; None where it is."""

    @property
    def core(self) -> CoreSpec:
        """The kind of its cores."""
        return self.chip.core

    @property
    def compilable(self) -> bool:
        """Whether the compiler accepts it as a target."""
        return self.not_compilable_because is None

    @property
    def timing(self) -> CoreTiming | None:
        """Published cycle costs, or None."""
        return TIMINGS.get(self.core.generation)

    @property
    def auto_cast_types(self) -> tuple[str, ...]:
        """Values that --auto-cast-type accepts."""
        return self.core.auto_cast_types

    @property
    def auto_cast(self) -> AutoCast:
        """float32 operations that exports, traces, checks, and estimates round unless told otherwise."""
        return self.core.auto_cast

    def __str__(self) -> str:
        return self.name

    def logical_cores_per_chip(self, lnc: int | None = None) -> int:
        """Cores of one chip as the runtime counts them; `lnc` physical cores form one (None: the default)."""
        return self.chip.num_cores // checked_lnc(self.chip, lnc)

    def hbm_bytes_per_core(self, lnc: int | None = None) -> int:
        """Fair share of device memory of one logical core.

        With lnc=1 on Trainium2, two cores share a 24 GiB stack: one alone may take more than its 12 GiB share.
        """
        return self.chip.hbm_bytes // self.logical_cores_per_chip(lnc)

    @property
    def shares_memory(self) -> bool:
        """Whether the cores of a chip share one memory, so that a core may use more than its part (Inf1)."""
        return self.chip.memory == "DRAM"

    @property
    def keeps_rounded_weights(self) -> bool:
        """Whether memory has rounded weights in 16 bits, because neuron-cc writes them into the NEFF in 16 bits (Neuron
        docs, Mixed precision and performance-accuracy tuning (neuron-cc))."""
        return self.core.generation == 1

    def hbm_bytes_of_one_core(self, lnc: int | None = None) -> int:
        """Device memory that one logical core may use while the others of its chip use none."""
        return self.chip.hbm_bytes if self.shares_memory else self.hbm_bytes_per_core(lnc)

    def hbm_bytes_per_s_per_core(self, lnc: int | None = None) -> float:
        """Fair share of the device memory's rate of one logical core."""
        return self.chip.hbm_bytes_per_s / self.logical_cores_per_chip(lnc)

    def supports_dtype(self, name: str) -> bool:
        """Return whether the engines know a dtype, or the compiler accepts it if `name` is an --auto-cast-type value.

        64-bit types are False: the compiler narrows such inputs to 32 bits before any engine sees them.
        """
        if name in AUTO_CAST_DTYPES:
            return name in self.core.auto_cast_types
        return canonical_dtype(name) in self.core.dtypes


_INF1_REASON = (
    "NeuronCore-v1 runs exported encoders, convolutional networks, and text encoder-decoders, and what "
    "torch.neuron.trace makes of other models"
)


def _target(family: str, instances: Iterable[InstanceSpec]) -> Target:
    sizes, reason = tuple(instances), _INF1_REASON if family == "inf1" else None
    return Target(name=family, chip=sizes[0].chip, instances=sizes, not_compilable_because=reason)


TARGETS: Mapping[str, Target] = {
    family: _target(family, instances)
    for family, instances in itertools.groupby(INSTANCES.values(), key=lambda instance: instance.family)
}


def taking_e4m3fn(target: Target) -> Target:
    """Return a target that takes torch's `float8_e4m3fn` for its own e4m3, if it has one.

    Numbers up to 240 have the same bits in both. The compiler's flag is `--experimental-unsafe-fp8e4m3fn-as-fp8e4m3`,
    which NxD Inference passes for caches in 8 bits.
    """
    core = target.core
    if "float8_e4m3" not in core.dtypes or "float8_e4m3fn" in core.dtypes:
        return target
    core = dataclasses.replace(core, dtypes=(*core.dtypes, "float8_e4m3fn"))
    return dataclasses.replace(target, chip=dataclasses.replace(target.chip, core=core))


def require_compilable(target: Target) -> Target:
    """Return the target if artifacts can be compiled for it."""
    if target.not_compilable_because is None:
        return target
    targets = [other.name for other in TARGETS.values() if other.compilable]
    message = f"Models cannot be compiled for {target.name}: {target.not_compilable_because}."
    raise ConfigError(message, hint=f"Compile for one of {', '.join(targets)}.", target=target.name, targets=targets)


def require_dtype(target: Target, name: str) -> str:
    """Return the canonical name of a dtype, or of a value of --auto-cast-type, if the target supports it.

    Raises:
        UnsupportedDtypeError: The target does not support it; the message lists the supported dtypes and targets.
        ConfigError: there is no such dtype.
    """
    canonical = AUTO_CAST_DTYPES.get(name) or canonical_dtype(name)
    if target.supports_dtype(name):
        return canonical
    kind, supported = "a dtype", target.core.dtypes
    if name in AUTO_CAST_DTYPES:
        kind, supported = "an --auto-cast-type", target.auto_cast_types
    targets = [t.name for t in TARGETS.values() if t.compilable and t.supports_dtype(name)]
    narrower, choices = _NARROWER.get(canonical), ", ".join(supported)
    hint = f"Convert to {narrower}" if narrower in target.core.dtypes else f"Use one of {choices}"
    elsewhere = f", or compile for {' or '.join(targets)}" if targets else ""
    message = f"{target.name} does not support '{name}' as {kind}: {target.core.name} has {choices}."
    hint = f"{hint}{elsewhere}."
    raise UnsupportedDtypeError(
        message, hint=hint, target=target.name, dtype=canonical, supported=list(supported), targets=targets
    )


ALIASES: dict[str, str] = {
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "tf32": "tfloat32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e3m4": "float8_e3m4",
    "f8e4m3": "float8_e4m3",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}
"""Other spellings."""

HARDWARE_DTYPES = ("float8_e3m4", "float8_e4m3", "mxfp4", "mxfp8", "tfloat32")
"""Names that `core.DTYPE_SIZE_BYTES` does not have, because no tensor of the host has that dtype."""

KNOWN_DTYPES: tuple[str, ...] = tuple(sorted({*DTYPE_SIZE_BYTES, *HARDWARE_DTYPES}))
"""Every dtype that can be asked about."""


def canonical_dtype(name: str) -> str:
    """Return the one spelling of a dtype.

    Args:
        name: torch's name with or without "torch.", a hardware name, or a short name such as "bf16".

    Raises:
        ConfigError: there is no such dtype.
    """
    key = name.strip().lower().removeprefix("torch.")
    key = ALIASES.get(key, key)
    if key not in KNOWN_DTYPES:
        raise invalid_choice("dtype", name, [*KNOWN_DTYPES, *ALIASES])
    return key


_TARGET: contextvars.ContextVar[Target | None] = contextvars.ContextVar("target of kernels", default=None)


@contextlib.contextmanager
def kernels_for(target: Target | None) -> Iterator[None]:
    """Run a block in which kernels are for a target, unless the environment or they themselves name one."""
    token = _TARGET.set(target)
    try:
        yield
    finally:
        _TARGET.reset(token)


def target_of_kernels() -> Target | None:
    """Return the target of the innermost `kernels_for`."""
    return _TARGET.get()
