"""Counts of a configuration, apart from machines and times: counted once, kept on disk, and timed for each request.

A decoder is known by its sizes, which every batch, length, and degree of tensor parallelism shares. A single-pass model
is known by one graph of fixed shapes. Timing either needs neither torch nor transformers.

    known = find_counts(folder, request, machine, {})
    if known.counts is not None:
        known.estimate("llama", request, machine)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import env
from ..core import AutoCast, Choice
from ..errors import ConfigError
from ..options import SOURCE_OPTIONS
from .counts import CountFile, count_file
from .decoders import DecoderRequest, decoder_estimate, require_no_options
from .graph_choice import no_prefix_cache
from .graphs import graph_estimate
from .machine import Machine, require_fits
from .quantity import Estimate
from .work import DecoderSizes, GraphWork

OF_TIMING = ("data_parallel_size", "batches_in_flight", "sdk")
"""Fields of a request to a single-pass model that its graph does not depend on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderCounts:
    """A decoder that is estimated from its sizes."""

    sizes: DecoderSizes
    notes: tuple[str, ...]
    """Notes that follow from its configuration."""

    def estimate(self, name: str, request: DecoderRequest, machine: Machine) -> Estimate:
        """Estimate a request.

        Raises:
            ConfigError, DeviceMemoryError: as `simulator.estimate`.
        """
        if request.batches_in_flight is not None:
            require_no_options({"batches_in_flight": request.batches_in_flight}, "a decoder")
        if request.prefix_hit_rate is not None:
            raise no_prefix_cache(request.prefix_hit_rate)
        return decoder_estimate(self.sizes, request, machine, name=name).noted(*self.notes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCounts:
    """One run of a single-pass model."""

    work: GraphWork
    rows: int
    """Examples of the run."""
    axes: Mapping[str, int]
    """Its batch sizes by axis."""
    memory: Mapping[str, int]
    """HBM of a core by category."""
    num_cores: int
    """Cores that share the graph."""
    num_cores_reason: str
    dtype: str
    auto_cast: AutoCast
    task: str
    notes: tuple[str, ...]

    def estimate(self, name: str, request: DecoderRequest, machine: Machine) -> Estimate:
        """Estimate a request whose shapes the run has.

        Raises:
            DeviceMemoryError: it does not fit a core.
        """
        memory = dict(self.memory)
        require_fits(name, memory, machine, num_cores=self.num_cores)
        result = graph_estimate(
            self.work,
            machine,
            name=name,
            rows=self.rows,
            axes=self.axes,
            memory=memory,
            task=self.task,
            num_cores=self.num_cores,
            num_copies=request.data_parallel_size,
            num_in_flight=request.batches_in_flight or 1,
            assumptions=(
                f"graph {self.work.name} as an export would compile it, weights in {self.dtype}, "
                f"auto_cast {self.auto_cast}",
                f"Neuron SDK {request.sdk or 'current'}: single-pass models changed little between releases",
            ),
        )
        cores = Choice(value=self.num_cores, reason=self.num_cores_reason)
        return dataclasses.replace(result, num_cores=cores).noted(*self.notes)


Counts = DecoderCounts | RunCounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """Cached counts of a checkpoint, if there are any, and the files for new ones."""

    counts: Counts | None
    reason: str
    """Where they are, or why there are none."""
    files: Mapping[type[Counts], CountFile]
    """File for each class of counts; empty if counts are not kept."""

    def estimate(self, name: str, request: DecoderRequest, machine: Machine) -> Estimate:
        """Estimate a request from the counts that were found."""
        assert self.counts is not None, "nothing was found"
        choice = Choice(value="cached", reason=self.reason)
        return dataclasses.replace(self.counts.estimate(name, request, machine), counts=choice)

    def keep(self, name: str, counts: Counts) -> Choice[str]:
        """Write new counts, and say where."""
        file = self.files.get(type(counts))
        kept = "not recorded" if file is None else file.write(name, counts)
        return Choice(value="counted", reason=f"{self.reason}; {kept}")


def find_counts(folder: Path, request: DecoderRequest, machine: Machine, options: Mapping[str, Any]) -> Known:
    """Look for the counts of a checkpoint on disk; options are those of `simulator.estimate`."""
    if options.get("trust_remote_code"):
        return Known(counts=None, reason="with trust_remote_code, a checkpoint's code runs for each estimate", files={})
    if env.no_compile_cache():
        return Known(counts=None, reason="NEURON_CC_FLAGS has --no_cache", files={})
    try:
        files = _files(folder, request, machine, options)
    except (ConfigError, OSError, TypeError) as error:
        problem = str(error).splitlines()[0]
        return Known(counts=None, reason=f"there is no file for counts of this request ({problem})", files={})
    problems = []
    for kind, file in files.items():
        counts, reason = file.read(kind)
        if counts is not None:
            return Known(counts=counts, reason=reason, files=files)
        problems += [reason] if reason else []
    reason = problems[0] if problems else "no counts of this configuration are in the cache"
    return Known(counts=None, reason=reason, files=files)


def _files(
    folder: Path, request: DecoderRequest, machine: Machine, options: Mapping[str, Any]
) -> dict[type[Counts], CountFile]:
    """Files of the classes of counts that a request can be answered from.

    Raises:
        ConfigError: no folder can be written.
        OSError: the checkpoint cannot be read.
        TypeError: an option has no JSON form.
    """
    others = {name: value for name, value in options.items() if name not in SOURCE_OPTIONS}
    files: dict[type[Counts], CountFile] = {}
    if others.keys() <= {"task"} and request.speculation is None:
        files[DecoderCounts] = count_file(folder, "decoder", others)
    asked = {name: value for name, value in dataclasses.asdict(request).items() if name not in OF_TIMING}
    asked |= {"instance": machine.instance.value.name, "environment": list(env.machine_variables())}
    asked |= {"options": others}
    files[RunCounts] = count_file(folder, "run", asked)
    return files
