"""Compile one body ahead of time with Inductor, into a package that the C++ loader calls directly.

Runs in a worker process (see `pool.py`) or in this one. The package is host code: it stays in the local store.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import LoweringError, refusal
from ..serial import body_from_dict
from . import attention
from .arithmetic import host_body
from .aten import HostFunction
from .choose import HostLevel, compiler_knows_cpu, probe_cpu
from .prepare import Preparation

_OPTIONS: dict[str, Any] = {
    # Two headers of torch cost 5 s each to precompile and are used by a handful of bodies.
    "cpp_cache_precompile_headers": False,
    # A fused multiply-add rounds once instead of twice.
    "cpp.enable_floating_point_contract_flag": "fast",
    # Intermediate results of up to 100 KB live on the stack: some thirty allocations less for a block and token.
    "aot_inductor.allow_stack_allocation": True,
}
_MAX_OPTIONS: dict[str, Any] = {"max_autotune": True, "cpp.enable_grouped_gemm_template": True}


def compile_body(
    body: dict[str, Any], level: HostLevel, output: Path, preparations: Sequence[Preparation] = ()
) -> None:
    """Compile a stored body to `output`, a `.pt2` host package; nothing is left behind on failure.

    Args:
        body: as `serial.body_to_dict` returns it.
        level: how to compile.
        output: where the package goes.
        preparations: which of its weights it will be given in another form.

    Raises:
        LoweringError: Inductor or the C++ compiler failed.
    """
    import torch
    from torch._inductor import aoti_compile_and_package

    partial = output.with_name(f"{output.stem}.{os.getpid()}.partial.pt2")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            convolutions = [one.targets[0] for one in preparations if one.kind == "convolution"]
            orders = [(one.sources, one.targets) for one in preparations if one.kind == "channels_last"]
            program = host_body(body_from_dict(body), probe_cpu(), convolutions, *orders)  # type: ignore[arg-type]
            options = {**_OPTIONS, **(_MAX_OPTIONS if level == "inductor-max" else {})}
            options |= attention.inductor_options()
            options["cpp.vec_isa_ok"] = compiler_knows_cpu() or None
            # Packed weights have no address that the minimal interface could take.
            options["aot_inductor.use_minimal_arrayref_interface"] = not preparations
            aoti_compile_and_package(program, package_path=str(partial), inductor_configs=options)
        os.replace(partial, output)
    except (RuntimeError, OSError) as error:
        raise LoweringError(
            refusal(
                asked=f"host code for {output.stem}",
                found=f"{type(error).__name__}: {_shortened(str(error).strip())}",
                why="Inductor or the C++ compiler refused the body",
                do="export with -O1, which needs no compiler, and run `optimum-cli neuron doctor`",
            )
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _shortened(text: str, first: int = 150, last: int = 600) -> str:
    """The kind of error is at the start, what the compiler said at the end; its command line between is long."""
    return text if len(text) <= first + last else f"{text[:first]} ... {text[-last:]}"


def load_package(path: Path) -> HostFunction:
    """Return a function from a list of tensors to a list of tensors; mutated arguments change in place."""
    import torch

    loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    return loader.run
