"""What an export decided, as plain data: for people, and for `--json`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..base.core import Choice
from ..hardware import resolve_instance
from ..kinds import DECODER_CHOICES, SHARING
from ..sources import method_of, quantization_of, served_task, weights_reader
from .inspection import describe_graph, describe_stages
from .prepared import Prepared


def describe(prepared: Prepared) -> dict[str, Any]:
    """Return plain data about a compiled model."""
    host = prepared.host.describe() if prepared.host else Choice(value="none", reason="no weights to run with")
    available, instance = (
        prepared.target.value.hbm_bytes_of_one_core(),
        resolve_instance(prepared.config.instance_type).value,
    )
    task = served_task(prepared.source.config)
    if task is None or task.value != prepared.config.task:
        task = Choice(value=prepared.config.task, reason="requested by name")
    outcome, _, why = prepared.cache.reason.partition(": ")
    quantization = quantization_of(prepared.source.config)
    return {
        "model": prepared.source.name,
        "task": task.to_dict(),
        "family": prepared.metadata["family"],
        **{name: prepared.metadata[name] for name in (*DECODER_CHOICES, SHARING) if name in prepared.metadata},
        "target": prepared.target.to_dict(),
        "num_cores": prepared.artifact.num_cores.to_dict(),
        **({"stages": describe_stages(prepared.program, prepared.needs, instance)} if len(prepared.needs) > 1 else {}),
        "cache": {**prepared.cache.to_dict(), "value": outcome, "reason": why},
        "host_code": {
            # What new requests and sequences run on: code that is being bound serves a moment later.
            "value": host.value if prepared.loaded is None else prepared.loaded.executor.levels,
            "reason": host.reason,
        },
        "weights": None
        if prepared.tensors is None
        else {"value": prepared.tensors.value.origin, "reason": prepared.tensors.reason},
        **(
            {"stored_as": {"value": method_of(quantization), "reason": prepared.tensors.reason}}
            if quantization is not None and prepared.tensors is not None
            else {}
        ),
        **({"random_weights": list(prepared.source.random_weights)} if prepared.source.random_weights else {}),
        "config": prepared.config.to_dict(),
        "placed_share": prepared.placement,
        "layers": prepared.metadata["stacks"],
        "patches": prepared.metadata.get("patches", []),
        "graphs": [describe_graph(graph) for graph in prepared.program.graphs.values()],
        "hbm_bytes": {**dataclasses.asdict(prepared.need), "total": prepared.need.total, "available": available},
        "fits_one_core": prepared.need.total <= available,
        "validation": [error.to_dict() for error in prepared.validation],
        "validated": prepared.validated.to_dict(),
        **(
            {"reference_weights": weights_reader(quantization).to_dict()}
            if quantization is not None and prepared.validated.value != "off"
            else {}
        ),
        **({"quality": prepared.quality.to_dict()} if prepared.quality else {}),
        "timings_s": {name: round(seconds, 3) for name, seconds in prepared.timings_s.items()},
        "simulated": True,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Outcome of an export with its choices and their reasons."""

    prepared: Prepared
    """The compiled model."""
    output_dir: Path
    size_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and for `--json`."""
        return describe(self.prepared) | {"output_dir": str(self.output_dir), "size_bytes": self.size_bytes}
