"""All decisions for one captured frame, made once: its forward and its backward are compiled in the same way.

The backward is compiled later and in another thread, where the number of threads or the library for float32 may have
changed. This module does not depend on graphs.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch

from ...base.core import Choice
from ...compiler.lower import HostLevel, compiler_knows_cpu
from ...hardware import Target
from .. import products
from .options import CompileOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How the graphs of one captured frame are compiled."""

    options: CompileOptions
    target: Choice[Target]
    """Target that graphs are checked and estimated for."""
    host_code: Choice[HostLevel]
    """How graphs run on the host."""
    products: Choice[products.Library]
    """Library that multiplies float32 matrices on the host."""
    by_onednn: bool
    """Whether float32 matrices are multiplied by oneDNN, which may be switched off in torch."""
    num_threads: int
    """Threads that loops are compiled for."""
    knows_cpu: bool
    """Whether the C++ compiler supports the vector extensions of this CPU."""
    frame: str
    """Torch's number of the frame and of its compile, such as "0/1"."""
    why: str
    """Reason of the compile: first call, or the guard that failed."""

    @classmethod
    def make(cls, options: CompileOptions, host_code: Choice[HostLevel], *, frame: str, why: str) -> Plan:
        """Resolve unset options for the current state of this process."""
        library = products.current()
        return cls(
            options=options,
            target=options.resolve(),
            host_code=host_code,
            products=library,
            by_onednn=library.value == "onednn" and torch.backends.mkldnn.enabled,
            num_threads=torch.get_num_threads(),
            knows_cpu=host_code.value != "aten" and compiler_knows_cpu(),
            frame=frame,
            why=why,
        )

    @property
    def key(self) -> str:
        """Everything here that can change a graph, its checks, or its host code, as text."""
        options = dataclasses.asdict(self.options) | {
            "target": self.target.value.name,
            "allow_host_ops": sorted(self.options.allow_host_ops),
        }
        fields = ("num_threads", "knows_cpu", "by_onednn")
        settings = {"host_code": self.host_code.value} | {name: getattr(self, name) for name in fields}
        return json.dumps(options | settings, sort_keys=True)

    def inductor_settings(self) -> dict[str, Any]:
        """Settings of Inductor for host code.

        Loops are compiled for a number of threads, which is in the key of Inductor's cache only if it is a setting.
        """
        from ...upstream.inductor import inductor_config

        return {
            "max_autotune": self.host_code.value == "inductor-max",
            "cpp.threads": self.num_threads,
            "cpp.vec_isa_ok": self.knows_cpu or None,
            # Outside of host code, Inductor's random numbers do not follow their seeds, so a backward that repeats a
            # dropout would draw another mask.
            "fallback_random": self.host_code.value == "aten" or inductor_config.fallback_random,
        }
