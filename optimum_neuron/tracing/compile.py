"""Entries of one model become one NEFF: flags, capture, check, cache, weights.

The program goes through the compile cache without its weights, so a fine-tuned model hits; weights are put into the
artifact afterwards, where they are wanted there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..base import env
from ..compiler import (
    COMPILER_VERSION,
    Compiled,
    CompilerFlags,
    Program,
    compile_graphs,
    parse_flags,
    stage_needs,
    write_program,
)
from ..compiler.cache import CompileCache
from ..compiler.neff import Neff, open_neff
from ..errors import ConfigError
from ..hardware import (
    Target,
    require_compilable,
    require_default_lnc,
    require_dtype,
    resolve_instance,
    resolve_target,
)
from ..runtime import require_fit
from ..weights import Shard, Shards, range_split
from .artifact import KIND
from .entry import ROOT, Entry
from .log import compile_log, compiled_lines, unwritable
from .tensors import names_of, require_dtypes, tensors_of, weights_file

NEFF_FILE = "graph.neff"
"""Name of the artifact in the compiler's work folder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Checked flags and the target they lead to."""

    flags: CompilerFlags
    """As given."""
    target: Target
    """Compile options."""


def checked_flags(
    compiler_args: str | Sequence[str] | None, *, cpu_backend: bool = False, stacklevel: int = 4
) -> Flags:
    """Read `compiler_args`, and check that the target and the simulated instance support them."""
    flags = parse_flags(compiler_args, defaults=env.compiler_flags())
    if cpu_backend and flags.target is None:
        message = "cpu_backend=True needs a target, and compiler_args name none."
        raise ConfigError(message, hint='Pass compiler_args="--target inf2", or another target.', option="cpu_backend")
    target = require_compilable(resolve_target(flags.target).value)
    require_default_lnc(target.chip, asked={} if flags.lnc is None else {"--lnc": flags.lnc})
    if flags.auto_cast != "none":
        require_dtype(target, flags.auto_cast_type)
    instance = resolve_instance().value
    if not cpu_backend and instance.chip.core.generation != target.core.generation:
        message = f"{instance.name}, the simulated instance, cannot run a model compiled for {target.name}."
        hint = f"Set OPTIMUM_NEURON_INSTANCE={target.instances[0].name}, or pass cpu_backend=True to compile only."
        raise ConfigError(message, hint=hint, target=target.name, instance=instance.name)
    flags.warn_ineffective(stacklevel=stacklevel)
    return Flags(flags=flags, target=target)


@contextlib.contextmanager
def work_folder(compiler_workdir: str | Path | None, temp_dir: str | None) -> Iterator[Path]:
    """The folder that the artifact goes to: the user's, or one in `temp_dir` that is removed afterwards."""
    if compiler_workdir is not None:
        try:
            Path(compiler_workdir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable("compiler_workdir", compiler_workdir, error) from error
        yield Path(compiler_workdir)
        return
    try:
        if temp_dir is not None:
            Path(temp_dir).mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix="optimum-neuron-trace-", dir=temp_dir)
    except OSError as error:
        if temp_dir is None:
            raise
        raise unwritable("--temp-dir", temp_dir, error) from error
    with scratch as folder:
        yield Path(folder)


def compile_entries(
    entries: Mapping[str, Entry],
    flags: Flags,
    folder: Path,
    *,
    inline_weights: bool,
    host_ops: Collection[str] = (),
    facts: Mapping[str, Any] | None = None,
    stages: Sequence[str] = (),
    num_ranks: int = 1,
    divided: Collection[str] | None = None,
) -> tuple[Neff, list[torch.Tensor]]:
    """Compile entries of one model, by the name of their graphs, into `graph.neff` in the folder.

    Args:
        host_ops: unsupported operators that run on the host.
        facts: more metadata.
        stages: modules of the user's module that are pipeline stages, in order; all of it, if there are any.
        num_ranks: cores that exchange tensors; the entries are the program of one of them.
        divided: weights of which each rank has its own, one after the other in the first dimension; values come later
            then, and None takes those of the entries.

    Returns:
        The open NEFF, and the separate weights, an empty list if they are inlined.
    """
    options = flags.flags
    for entry in entries.values():
        inputs = dict(zip(entry.inputs.names, entry.inputs.tensors, strict=True))
        require_dtypes({name: t for name, t in {**entry.tensors(), **inputs}.items() if t.is_quantized})
    with compile_log(options.logfile) as log:
        log.append(f"compiling {', '.join(entries)} for {flags.target.name}: {options}")
        compiled = compile_graphs(
            [functools.partial(entry.capture, name, cuts=stages) for name, entry in entries.items()],
            target=flags.target,
            auto_cast=options.auto_cast,
            auto_cast_type=options.auto_cast_type,
            allow_host_ops=host_ops,
            implicit_integer_downcast=options.implicit_integer_downcast,
            num_stages=max(1, len(stages)),
            stages={f"{ROOT}.{path}": number for number, path in enumerate(stages)},
        )
        log += compiled_lines(entries, compiled)
    first = next(iter(entries.values()))
    tensors = tensors_of(entries, compiled.program) if divided is None else {}
    require_dtypes({**tensors, **compiled.program.constants})
    _require_fit(compiled.program, flags.target, type(first).__name__)
    metadata = {**_metadata(entries, compiled, flags), **(facts or {})}
    if divided is not None and num_ranks > 1:
        metadata["shards"] = _stacked(compiled.program, num_ranks, divided).to_dict()
    write = functools.partial(
        write_program, program=compiled.program, name=type(first).__name__, target=flags.target, metadata=metadata
    )
    fields = {
        "compiler_version": COMPILER_VERSION,
        "ir_hash": compiled.program.content_hash(),
        "model": type(first).__name__,
        "target": flags.target.name,
        "auto_cast": options.auto_cast,
        "auto_cast_type": options.auto_cast_type,
        "metadata": metadata,
    }
    path = folder / NEFF_FILE
    if env.no_compile_cache():
        write(path)
    else:
        shutil.copyfile(CompileCache().get_or_compile(fields, write).path, path)
    if inline_weights and tensors:
        with weights_file(tensors, folder) as weights:
            write(path, weights=weights)
        return open_neff(path), []
    return open_neff(path), list(tensors.values())


def _require_fit(program: Program, target: Target, model_name: str) -> None:
    """Check that a program fits the memory of the target, as the vendor's compiler does, before its NEFF is written."""
    simulated = resolve_instance().value
    require_fit(
        stage_needs(program, target),
        instance=simulated if simulated.family == target.name else target.instances[0],
        target=target,
        model_name=model_name,
        num_cores=program.num_stages,
        program=program,
        traced=True,
    )


def _stacked(program: Program, num_ranks: int, divided: Collection[str]) -> Shards:
    """How ranks find their own weights."""
    own: dict[str, Shard] = {}
    for name, spec in program.weights.items():
        if name.removeprefix(f"{ROOT}.") in divided:
            size = spec.shape[0]
            parts = [[(rank * size, size)] for rank in range(num_ranks)]
            own[name] = Shard(dim=0, splits=(range_split(size * num_ranks, parts),))
    return Shards(group_size=num_ranks, of_weights=own)


def _metadata(entries: Mapping[str, Entry], compiled: Compiled, flags: Flags) -> dict[str, Any]:
    program = compiled.program
    return {
        "kind": KIND,
        "entries": list(entries),
        "optlevel": flags.flags.optlevel,
        "auto_cast": flags.flags.auto_cast,
        "weight_sources": {name: [name.removeprefix(f"{ROOT}.")] for name in program.weights},
        "weights": names_of(program),
        "states": [name.rpartition(".")[0] for name in program.states],
        "operators": {name: report.to_dict() for name, report in zip(entries, compiled.reports, strict=True)},
        "stacks": {path: choice.to_dict() for path, choice in compiled.stacks.items()},
    }
