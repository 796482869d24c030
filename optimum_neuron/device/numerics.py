"""The arithmetic of the torch device: `reference` is the host's; `emulated` rounds as the chip does.

Emulated, float32 operands of matrix products are rounded to `auto_cast_type` and accumulated in float32. Products of
16-bit floats are computed in float32 and rounded once. With `stochastic_rounding` everything that is written to 16-bit
floats is rounded up or down at random, so that small updates survive on average. A mode holds for the whole process:
backward passes run in other threads.

    from optimum_neuron.device import numerics

    with numerics.use("emulated", auto_cast_type="tf32"):
        y = x @ w
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from ..base import env
from ..base.core import Choice
from ..errors import ConfigError, invalid_choice

Mode = Literal["reference", "emulated"]
Operand = Literal["none", "bf16", "fp16", "tf32", "fp8_e4m3"]

OPERANDS: tuple[Operand, ...] = get_args(Operand)
"""Values of `auto_cast_type`, in the order of `enum class Operand` in csrc/rounding.h."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numerics:
    """Arithmetic of the device."""

    mode: Mode = "reference"
    """"reference": the host's arithmetic; "emulated": the chip's, as far as docs/device.md says."""
    auto_cast_type: Operand = "bf16"
    """Dtype that float32 operands of matmuls are rounded to, in emulated mode."""
    stochastic_rounding: bool = False
    """Whether writes to bfloat16 and float16 are rounded stochastically, in emulated mode."""
    seed: int = 0
    """Seed of stochastic rounding."""

    def __post_init__(self) -> None:
        for name, choices in (("mode", get_args(Mode)), ("auto_cast_type", OPERANDS)):
            if getattr(self, name) not in choices:
                raise invalid_choice(name, getattr(self, name), choices)
        if self.mode == "reference" and self.stochastic_rounding:
            message = "mode='reference' rounds to nearest, so stochastic_rounding has no effect."
            raise ConfigError(message, hint="Pass mode='emulated'.", options=["mode", "stochastic_rounding"])


def from_environment(environ: Mapping[str, str] | None = None) -> Choice[Numerics]:
    """Return the arithmetic set by the environment, and why."""
    source = {} if environ is None else {"environ": environ}
    mode, operand = env.numerics(**source), env.auto_cast_type(**source)
    stochastic = env.stochastic_rounding(**source)
    if mode != "emulated" and not stochastic and operand is not None:
        message = f"OPTIMUM_NEURON_AUTO_CAST_TYPE is {operand}, but reference numerics rounds no operands."
        hint = "Set OPTIMUM_NEURON_NUMERICS=emulated too, or unset it."
        raise ConfigError(message, hint=hint, variable="OPTIMUM_NEURON_AUTO_CAST_TYPE", value=operand)
    if mode is None and not stochastic:
        return Choice(value=Numerics(), reason="default: OPTIMUM_NEURON_NUMERICS is not set")
    # Rounding is how the host emulates the chip's arithmetic, so requesting rounding implies emulation.
    reason = "NEURON_RT_STOCHASTIC_ROUNDING_EN=1" if mode is None else f"OPTIMUM_NEURON_NUMERICS={mode}"
    value = Numerics(
        mode="emulated" if mode is None else mode,  # type: ignore[arg-type]
        auto_cast_type="bf16" if operand is None else operand,  # type: ignore[arg-type]
        stochastic_rounding=stochastic,
        seed=env.stochastic_rounding_seed(**source),
    )
    return Choice(value=value, reason=reason)


_current: Numerics | None = None


def current() -> Numerics:
    """Return the arithmetic in use; the first use of a core applies the environment, and refuses a wrong value."""
    if _current is None:
        _set(from_environment().value)
    assert _current is not None
    return _current


@contextlib.contextmanager
def use(
    mode: Mode, *, auto_cast_type: Operand = "bf16", stochastic_rounding: bool = False, seed: int = 0
) -> Iterator[Numerics]:
    """Compute with another arithmetic (the fields of `Numerics`) for the length of a block, in every thread."""
    before = current()
    numerics = Numerics(mode=mode, auto_cast_type=auto_cast_type, stochastic_rounding=stochastic_rounding, seed=seed)
    _set(numerics)
    try:
        yield numerics
    finally:
        _set(before)


def _set(numerics: Numerics) -> None:
    from . import library

    global _current
    library.load()
    _current = numerics
    apply()


def apply() -> None:
    """Set the arithmetic in use for every device that is loaded."""
    from . import library

    numerics = current()
    emulated, operand = numerics.mode == "emulated", OPERANDS.index(numerics.auto_cast_type)
    for functions in library.loaded():
        functions.neuron_set_numerics(emulated, operand, numerics.stochastic_rounding, numerics.seed)
