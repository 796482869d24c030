"""Contents of an exported folder, as plain data; nothing in it is executed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact import open_artifact
from ..compiler import MemoryNeed, fullest_need, stage_needs
from ..hardware import InstanceSpec, resolve_instance, resolve_target, stage_instances
from ..kinds import DECODER_CHOICES
from ..options.configuration import NEFF_FILE
from ..sources import is_exported_pipeline, read_index
from .folder import read_folder, verify_weights

if TYPE_CHECKING:
    from ..compiler import Graph, Program


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Return plain data about an entry point: its name, calls, distinct subprograms and inputs."""
    return {
        "name": graph.name,
        "calls": len(graph.calls),
        "distinct": len({call.subprogram for call in graph.calls}),
        "inputs": ", ".join(f"{name} {spec}" for name, spec in graph.inputs.items()),
    }


def describe_stages(program: Program, needs: Sequence[MemoryNeed], instance: InstanceSpec) -> list[dict[str, Any]]:
    """Return plain data about the pipeline stages: instance, modules, and the HBM that each of its cores needs."""
    stages, instances = [], stage_instances(instance, len(needs))
    for stage, need in enumerate(needs):
        calls = [call for graph in program.graphs.values() for call in graph.calls if call.stage == stage]
        modules = [path for path in dict.fromkeys(call.module_path for call in calls) if path]
        place = {"stage": stage, "instance": instances[stage]}
        stages.append(place | {"first": modules[0], "last": modules[-1], "hbm_bytes": need.total})
    return stages


def _outputs(program: Program, graph: Graph) -> str:
    return ", ".join(f"{name} {program.value_spec(graph, value)}" for name, value in graph.outputs.items())


def inspect_export(path: str | Path) -> dict[str, Any]:
    """Describe an exported folder: graphs, shapes, flags, target, weights, memory; of a pipeline, for each program.

    Raises:
        ArtifactError: the folder is not a whole export.
        WeightsError: the weights are missing or differ from their recorded hash.
    """
    folder = Path(path)
    if is_exported_pipeline(folder):
        return _inspect_pipeline(folder)
    info = read_folder(folder)
    if info.artifact.get("weights") is not None:
        verify_weights(folder, info.artifact)
    artifact = open_artifact(folder / NEFF_FILE)
    program, metadata = artifact.program, artifact.metadata
    target, instance = resolve_target(info.config.target).value, resolve_instance(info.config.instance_type).value
    needs = stage_needs(program, target)
    need = fullest_need(needs)
    weights = info.artifact.get("weights") or {"file": None, "size_bytes": 0, "sha256": None}
    return {
        "folder": str(folder),
        "simulated": True,
        "neff": artifact.neff.to_dict(),
        "family": metadata["family"],
        **{name: metadata[name] for name in DECODER_CHOICES if name in metadata},
        "num_cores": artifact.num_cores.to_dict(),
        **({"stages": describe_stages(program, needs, instance)} if len(needs) > 1 else {}),
        "config": info.config.to_dict(),
        "placed_share": metadata["placement"],
        "graphs": [describe_graph(graph) | {"outputs": _outputs(program, graph)} for graph in program.graphs.values()],
        "subprograms": [
            {
                "name": sub.name,
                "operators": len(sub.body.graph.nodes) - len(sub.inputs) - 1,
                "called": sum(call.subprogram == sub.name for graph in program.graphs.values() for call in graph.calls),
            }
            for sub in program.subprograms.values()
        ],
        "weights": {**weights, "tensors": len(program.weights)},
        "hbm_bytes": dataclasses.asdict(need) | {"total": need.total, "available": target.hbm_bytes_of_one_core()},
        "produced_by": {
            key: info.artifact[key] for key in ("optimum_neuron_version", "compiler_version", "checkpoint", "revision")
        },
        # JSON sorted the keys; a table begins with the key of each row.
        "validation": [{"output": row["output"], **row} for row in info.artifact["validation"]],
    }


def _inspect_pipeline(folder: Path) -> dict[str, Any]:
    """Describe each program of an exported diffusion pipeline, by the name of its folder."""
    parts = sorted(path.parent for path in folder.glob(f"*/{NEFF_FILE}"))
    return {
        "folder": str(folder),
        "simulated": True,
        "pipeline": read_index(folder).model_type,
        "components": {part.name: inspect_export(part) for part in parts},
    }
