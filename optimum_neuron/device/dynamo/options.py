"""Options of `torch.compile(backend="neuron")`: parsing, defaults, and errors.

torch.compile(model, backend="neuron", options={"target": "trn2", "auto_cast": "matmul", "optlevel": "1"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from ...base import env
from ...base.core import AutoCast, AutoCastType, Choice, OptLevel
from ...compiler import arithmetic_options
from ...errors import ConfigError, NeuronError, invalid_choice, nearest, raise_together
from ...hardware import Target, require_compilable, require_default_lnc, resolve_target

_INDUCTOR_PREFIXES = (
    "triton.",
    "cuda.",
    "rocm.",
    "cutlass",
    "xpu",
    "cpp.",
    "max_autotune",
    "coordinate_descent",
    "epilogue",
)
"""Beginnings of Inductor's options, which are for its own backends."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Options of compiling a graph.

    Example:
        ```python
        from optimum_neuron.device.dynamo.options import CompileOptions

        assert CompileOptions.from_torch(options={"target": "trn2"}).resolve().value.name == "trn2"
        ```
    """

    target: str | None = None
    """Compile target or instance; None: the target from the environment, or else the default."""
    auto_cast: AutoCast = "none"
    """Which float32 operations are rounded to `auto_cast_type`."""
    auto_cast_type: AutoCastType = "bf16"
    """Dtype that auto-cast rounds to."""
    optlevel: OptLevel = "2"
    """Host code: "1" runs operators one by one, "2" compiles with Inductor, "3" also tries alternative kernels."""
    allow_host_ops: tuple[str, ...] = ()
    """Operators not supported by the chip that may run on the host, as "aten::sort"; "all" for each of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_host_ops", tuple(self.allow_host_ops))
        object.__setattr__(self, "optlevel", str(self.optlevel))
        choices = {"auto_cast": AutoCast, "auto_cast_type": AutoCastType, "optlevel": OptLevel}
        raise_together(
            invalid_choice(name, getattr(self, name), get_args(kind))
            for name, kind in choices.items()
            if getattr(self, name) not in get_args(kind)
        )

    @classmethod
    def from_torch(cls, *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> CompileOptions:
        """Read the keywords that `torch.compile` passes on; NEURON_CC_FLAGS may set the rest."""
        known = [field.name for field in dataclasses.fields(cls)]
        options = dict(options or {})
        problems: list[NeuronError] = []
        if mode not in (None, "default"):
            message = f"mode={mode!r} sets up CUDA graphs and autotuning, which backend='neuron' does not have."
            hint = "Leave mode out; options={'optlevel': '3'} spends more compile time."
            problems.append(ConfigError(message, hint=hint, option="mode", value=mode))
        for name in [name for name in options if name not in known]:
            message = f"Unknown option {name!r}{nearest(name, known) or '.'}"
            if name.startswith(_INDUCTOR_PREFIXES):
                message = f"{name!r} is an option of Inductor."
            hint = f"Options of backend='neuron' are {', '.join(known)}."
            problems.append(ConfigError(message, hint=hint, option=name, value=options[name], choices=known))
        raise_together(problems)
        return cls(**{**arithmetic_options(env.compiler_flags()), **options})

    def resolve(self) -> Choice[Target]:
        """Return the target, and why."""
        target = resolve_target(self.target)
        require_compilable(target.value)
        require_default_lnc(target.value.chip)
        return target
