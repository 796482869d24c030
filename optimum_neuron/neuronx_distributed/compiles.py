"""Compile traced models: `compile`, its parts, and what they return.

    compiled = compile(traced.hlo, traced.metaneff, key="main")

A weight has one layout, so functions that choose layouts change nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import tracing
from ..errors import ConfigError
from . import traces
from .traces import TraceArtifacts, TracedProgram

_logger = logging.getLogger("Neuron")


class ModelBuilderConstants:
    """Names of files and folders."""

    NEFF_FILE = tracing.NEFF_FILE
    COMMAND_FILE = "command.txt"
    DEFAULT_COMPILER_WORKDIR = "/tmp/nxd_models"
    DEFAULT_WORLD_SIZE = traces.WORLD_SIZE


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilationArtifacts:
    """A compiled program."""

    neff_filepath: str
    compiler_args: str
    """Flags it was compiled with."""


class WLOArtifacts(CompilationArtifacts):
    """A compiled program that could choose the layout of weights."""


@dataclasses.dataclass(frozen=True)
class LayoutTransformerArtifacts:
    """The change of weights to the layout of a program: none."""

    weights: tuple[str, ...] = ()


def generate_key(hlo_module: TracedProgram, key: str | None = None) -> str:
    """Return the key of a program.

    Args:
        hlo_module: the program.
        key: the answer, if it is given.
    """
    return key or f"model_{hashlib.sha256(hlo_module.SerializeToString()).hexdigest()[:8]}"


def default_flags(compiler_args: str | list[str] | None = None) -> str:
    """Return flags of the compiler, with NxD's defaults for those that are missing."""
    words = shlex.split(compiler_args) if isinstance(compiler_args, str) else list(compiler_args or ())
    names = [word.partition("=")[0] for word in words]
    if "--auto-cast" not in names:
        words.append("--auto-cast=none")
    if not any(name == "--optlevel" or name.startswith("-O") for name in names):
        words.append("-O1")
    return shlex.join(words)


def compile(
    hlo_module: object,
    metaneff: object,
    compiler_workdir: str | os.PathLike[str] | None = None,
    compiler_args: str | list[str] | None = None,
    key: str | None = None,
) -> CompilationArtifacts:
    """Compile a traced program to a NEFF.

    Args:
        hlo_module: the program.
        metaneff: its tensors.
        compiler_workdir: folder of the files; None: /tmp/nxd_models.
        compiler_args: flags of neuronx-cc.
        key: name of the program.

    Raises:
        UnsupportedOperatorError: an operator is not supported.
    """
    if not isinstance(hlo_module, TracedProgram) or not isinstance(metaneff, tracing.MetaNeff):
        hint = "Pass the fields hlo and metaneff of what trace() returns."
        raise ConfigError("compile takes a traced program and its tensors.", hint=hint)
    name, words = generate_key(hlo_module, key), default_flags(compiler_args)
    digest = hashlib.sha256(hlo_module.SerializeToString() + words.encode()).hexdigest()[:8]
    folder = Path(compiler_workdir or ModelBuilderConstants.DEFAULT_COMPILER_WORKDIR) / name / digest
    folder.mkdir(parents=True, exist_ok=True)
    flags = tracing.checked_flags(words)
    neff = compile_programs({name: hlo_module}, flags, folder)
    command = (
        f"neuronx-cc compile {name} --framework=XLA --target={flags.target.name} --output={neff.path.name} {words}"
    )
    (folder / ModelBuilderConstants.COMMAND_FILE).write_text(command + "\n")
    return CompilationArtifacts(neff_filepath=str(neff.path), compiler_args=words)


def compile_programs(programs: Mapping[str, TracedProgram], flags: tracing.Flags, folder: Path) -> Any:
    """Compile programs that share their weights and states to one NEFF, and return it."""
    first = next(iter(programs.values()))
    sizes = {one.world_size for one in programs.values()}
    if len(sizes) > 1:
        message = f"Programs of {', '.join(map(str, sorted(sizes)))} ranks cannot be one model."
        raise ConfigError(message, hint="Trace all of them with the same ranks.", world_sizes=sorted(sizes))
    neff, _ = tracing.compile_entries(
        {name: one.entry for name, one in programs.items()},
        flags,
        folder,
        inline_weights=False,
        num_ranks=first.world_size,
        divided=frozenset().union(*(one.divided for one in programs.values())),
    )
    return neff


def compile_wlo(
    hlo_module: TracedProgram,
    metaneff: tracing.MetaNeff,
    compiler_workdir: str | Path | None = None,
    compiler_args: str | list[str] | None = None,
    key: str | None = None,
) -> WLOArtifacts:
    """Compile a program that may choose layouts of weights, see `compile`; it keeps the only one.

    Args:
        hlo_module: the program.
        metaneff: its tensors.
        compiler_workdir: folder of the files.
        compiler_args: flags of neuronx-cc.
        key: name of the program.
    """
    compiled = compile(hlo_module, metaneff, compiler_workdir, compiler_args, key)
    return WLOArtifacts(neff_filepath=compiled.neff_filepath, compiler_args=compiled.compiler_args)


def compile_layout_transformer(
    wlo_artifacts: WLOArtifacts,
    priority_model_weight_name_to_idx: Mapping[str, int],
    compiler_workdir: str | Path | None = None,
) -> LayoutTransformerArtifacts:
    """Return the change of weights to the layout of a program: there is none.

    Args:
        wlo_artifacts: the program.
        priority_model_weight_name_to_idx: its weights.
        compiler_workdir: not used; nothing is compiled.
    """
    return LayoutTransformerArtifacts(tuple(priority_model_weight_name_to_idx))


def keep_layouts(trace_artifacts: TraceArtifacts, **others: Any) -> None:
    """Choose a layout of weights: there is one, so nothing changes.

    Args:
        trace_artifacts: a traced model.
        **others: other programs and their weights.
    """
    if not isinstance(trace_artifacts, TraceArtifacts):
        raise ConfigError("trace_artifacts is not what trace() returns.", hint="Pass the result of trace().")
    _logger.info("weights have one layout, which stays as it is")
