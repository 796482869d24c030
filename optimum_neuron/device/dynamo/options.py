"""Options of `torch.compile(backend="neuron")`: what it takes, and what it refuses by name.

torch.compile(model, backend="neuron", options={"target": "trn2", "auto_cast": "matmul", "optlevel": "1"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from ... import env
from ...compiler.flags import arithmetic_options
from ...core import AutoCast, AutoCastType, Choice, OptLevel
from ...errors import ConfigError, nearest, refusal
from ...hardware import Target, require_compilable, require_default_lnc, resolve_target

_OTHER_MACHINES = (
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
    """What decides how a graph is compiled.

    Example:
        ```python
        from optimum_neuron.device.dynamo.options import CompileOptions

        assert CompileOptions.from_torch(options={"target": "trn2"}).resolve().value.name == "trn2"
        ```
    """

    target: str | None = None
    """Compile target or instance; None: what the environment names, else the default."""
    auto_cast: AutoCast = "none"
    """Which float32 operations are rounded to `auto_cast_type`."""
    auto_cast_type: AutoCastType = "bf16"
    """What auto-cast rounds to."""
    optlevel: OptLevel = "2"
    """Host code: "1" runs operators one by one, "2" compiles with Inductor, "3" also tries alternative kernels."""
    allow_host_ops: tuple[str, ...] = ()
    """Operators that the chip refuses and that may run on the host, as "aten::sort"; "all" for each of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_host_ops", tuple(self.allow_host_ops))
        object.__setattr__(self, "optlevel", str(self.optlevel))
        choices = {"auto_cast": AutoCast, "auto_cast_type": AutoCastType, "optlevel": OptLevel}
        problems = [
            refusal(
                asked=f"options={{'{name}': {getattr(self, name)!r}}}",
                found=f"not one of {', '.join(get_args(kind))}" + nearest(str(getattr(self, name)), get_args(kind)),
                why="the compiler knows no other",
                do="pass one of them",
            )
            for name, kind in choices.items()
            if getattr(self, name) not in get_args(kind)
        ]
        if problems:
            raise ConfigError("\n".join(problems))

    @classmethod
    def from_torch(cls, *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> CompileOptions:
        """Read the keywords that `torch.compile` passes on; what they leave out, NEURON_CC_FLAGS may set.

        Raises:
            ConfigError: a mode, an option of another backend, or an unknown option; all are named at once.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        given = dict(options or {})
        problems = []
        if mode not in (None, "default"):
            problems.append(
                refusal(
                    asked=f"torch.compile(mode={mode!r}, backend='neuron')",
                    found="a mode of Inductor",
                    why="it sets CUDA graphs and autotuning of Inductor's kernels, and a NeuronCore runs neither",
                    do="leave mode out; options={'optlevel': '3'} spends more compile time",
                )
            )
        for name in given:
            if name in known:
                continue
            foreign = name.startswith(_OTHER_MACHINES)
            problems.append(
                refusal(
                    asked=f"options={{{name!r}: {given[name]!r}}} with backend='neuron'",
                    found="an option of Inductor" if foreign else f"unknown{nearest(name, known)}",
                    why="nothing here would read it",
                    do=f"remove it; there are {', '.join(known)}",
                )
            )
        if problems:
            raise ConfigError("\n".join(problems))
        return cls(**{**arithmetic_options(env.compiler_flags()), **given})

    def resolve(self) -> Choice[Target]:
        """The target, and why.

        Raises:
            ConfigError: there is no such target, or graphs cannot be compiled for it.
        """
        found = resolve_target(self.target)
        require_compilable(found.value)
        require_default_lnc(found.value.chip)
        return found
