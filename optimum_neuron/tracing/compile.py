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
    MemoryNeed,
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linked:
    """Entries of one model as a program, of which no file is written yet."""

    name: str
    """Class of the user's model."""
    compiled: Compiled
    """Program and the decisions made on the way."""
    tensors: dict[str, torch.Tensor]
    """Weights by the program's names; empty if their values come later."""
    flags: Flags
    """As given."""
    metadata: dict[str, Any]
    """Facts of the NEFF besides the program."""

    @functools.cached_property
    def needs(self) -> tuple[MemoryNeed, ...]:
        """Memory that it takes on a core of each pipeline stage, by stage."""
        return stage_needs(self.compiled.program, self.flags.target)


def compile_entries(
    entries: Mapping[str, Entry], flags: Flags, folder: Path, *, inline_weights: bool, **options: Any
) -> tuple[Neff, list[torch.Tensor]]:
    """Compile entries of one model into `graph.neff` in a folder; options are those of `link_entries`.

    Returns:
        The open NEFF, and the separate weights, an empty list if they are inlined.
    """
    linked = link_entries(entries, flags, **options)
    require_memory([linked], linked.name)
    return write_linked(linked, folder, inline_weights=inline_weights)


def link_entries(
    entries: Mapping[str, Entry],
    flags: Flags,
    *,
    host_ops: Collection[str] = (),
    facts: Mapping[str, Any] | None = None,
    stages: Sequence[str] = (),
    num_ranks: int = 1,
    divided: Collection[str] | None = None,
) -> Linked:
    """Capture and check entries of one model, by the name of their graphs, and make one program of them.

    Args:
        host_ops: unsupported operators that run on the host.
        facts: more metadata.
        stages: modules of the user's module that are pipeline stages, in order; all of it, if there are any.
        num_ranks: cores that exchange tensors; the entries are the program of one of them.
        divided: weights of which each rank has its own, one after the other in the first dimension; values come later
            then, and None takes those of the entries.
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
    metadata = {**_metadata(entries, compiled, flags), **(facts or {})}
    if divided is not None and num_ranks > 1:
        metadata["shards"] = _stacked(compiled.program, num_ranks, divided).to_dict()
    return Linked(name=type(first).__name__, compiled=compiled, tensors=tensors, flags=flags, metadata=metadata)


def write_linked(linked: Linked, folder: Path, *, inline_weights: bool) -> tuple[Neff, list[torch.Tensor]]:
    """Write `graph.neff`, and return what `compile_entries` does."""
    program, options, target = linked.compiled.program, linked.flags.flags, linked.flags.target
    write = functools.partial(write_program, program=program, name=linked.name, target=target, metadata=linked.metadata)
    fields = {
        "compiler_version": COMPILER_VERSION,
        "ir_hash": program.content_hash(),
        "model": linked.name,
        "target": target.name,
        "auto_cast": options.auto_cast,
        "auto_cast_type": options.auto_cast_type,
        "metadata": linked.metadata,
    }
    path = folder / NEFF_FILE
    if env.no_compile_cache():
        write(path)
    else:
        shutil.copyfile(CompileCache().get_or_compile(fields, write).path, path)
    if inline_weights and linked.tensors:
        with weights_file(linked.tensors, folder) as weights:
            write(path, weights=weights)
        return open_neff(path), []
    return open_neff(path), list(linked.tensors.values())


def require_memory(parts: Sequence[Linked], model_name: str) -> None:
    """Check that the parts of a model, loaded on the cores in turn, fit the memory of the target together."""
    simulated, target = resolve_instance().value, parts[0].flags.target
    programs = [part.compiled.program for part in parts]
    require_fit(
        [need for part in parts for need in part.needs],
        instance=simulated if simulated.family == target.name else target.instances[0],
        target=target,
        model_name=model_name,
        num_cores=max(program.num_stages for program in programs),
        program=programs[0] if len(programs) == 1 else None,
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
