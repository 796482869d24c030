"""Checkpoints of the real Optimum Neuron's trainer, whose weights are divided over tensor- and pipeline-parallel ranks.

    shards/model/dp_rank_00_tp_rank_00_pp_rank_00.pt                       tensors of a process, as `torch.save` writes
    shards/model/dp_rank_00_tp_rank_00_pp_rank_00.pt.tensors/tensor_0.pt   one tensor each, where the file above has
                                                                           references to them (xser)
    shards/mp_metadata_pp_rank_0.json                                      how each tensor is divided, and fused layers

An adapter is in `adapter_<name>/adapter_shards` in place of `shards`. Files are read without running pickled code.
Source: Optimum Neuron 0.4, models/training/checkpointing.py and transformations_utils.py (formats only).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArtifactError

if TYPE_CHECKING:
    import torch

FOLDERS = ("shards", "adapter_shards")
"""Folder of the shards of a model, and of an adapter."""
_FILE = re.compile(r"dp_rank_0+_tp_rank_(\d+)_pp_rank_(\d+)(\.pt)?")


def find_parallel_shards(folder: Path) -> Path | None:
    """Return the folder of shards of a checkpoint or of its adapter, or None."""
    places = [folder, *(folder / name for name in FOLDERS), folder / "adapter_default" / FOLDERS[1]]
    return next((place for place in places if (place / "mp_metadata_pp_rank_0.json").is_file()), None)


def read_parallel_shards(folder: Path) -> dict[str, torch.Tensor]:
    """Return the whole tensors under transformers' names.

    Args:
        folder: of `find_parallel_shards`.
    """
    stages: dict[int, dict[int, Path]] = {}
    for path in sorted((folder / "model").glob("dp_rank_*")):
        if path.is_file() and (match := _FILE.fullmatch(path.name)):
            stages.setdefault(int(match[2]), {})[int(match[1])] = path
    weights: dict[str, torch.Tensor] = {}
    for stage in range(len(list(folder.glob("mp_metadata_pp_rank_*.json")))):
        metadata = json.loads((folder / f"mp_metadata_pp_rank_{stage}.json").read_text(encoding="utf-8"))
        num_ranks = max((facts.get("num_partitions", 1) for facts in metadata["parameters"].values()), default=1)
        paths = stages.get(stage, {})
        if missing := sorted({*range(num_ranks)} - paths.keys()):
            message = f"{folder / 'model'} lacks the tensors of tensor-parallel ranks {missing} of stage {stage}."
            raise ArtifactError(
                message, hint="Copy all files of the run.", folder=str(folder), stage=stage, ranks=missing
            )
        weights |= _joined([_load(paths[rank]) for rank in sorted(paths)], metadata, folder)
    return weights


class _Reference:
    """In the place of torch_xla's class: the number of a file with one tensor."""

    tid: int


def _load(path: Path) -> dict[str, torch.Tensor]:
    import torch

    with torch.serialization.safe_globals([(_Reference, "torch_xla.utils.serialization.TensorReference")]):
        saved = torch.load(path, map_location="cpu", weights_only=True)
    tensors = path.with_name(f"{path.name}.tensors")
    return {
        name: torch.load(tensors / f"tensor_{value.tid}.pt", map_location="cpu", weights_only=True)
        if isinstance(value, _Reference)
        else value
        for name, value in saved.items()
    }


def _joined(ranks: Sequence[Mapping[str, torch.Tensor]], metadata: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Join the tensors of one stage."""
    dims = {_plain(name): facts.get("partition_dim") for name, facts in metadata["parameters"].items()}
    parts = {name: [rank[name] for rank in ranks] for name in ranks[0]}
    for module in metadata["model_weight_transformation_specs"]:
        for kind, spec in module["specs"]:
            path = module["module_fully_qualified_name"]
            if kind != "FusedLinearsSpec" or spec.get("peft_type") is not None:
                what = f"{path} has layers of the kind {kind}, {spec.get('peft_type') or 'not fused'}"
                message = f"The shards in {folder} cannot be joined: {what}."
                hint = "Run `optimum-cli neuron consolidate` of Optimum Neuron where it was trained."
                raise ArtifactError(message, hint=hint, folder=str(folder), kind=kind, module=path)
            _split_fused(parts, dims, path, spec)
    import torch

    return {
        name: each[0].contiguous() if dims.get(name) is None else torch.cat(each, dim=dims[name])
        for name, each in parts.items()
    }


def _split_fused(
    parts: dict[str, list[torch.Tensor]], dims: dict[str, int | None], path: str, spec: Mapping[str, Any]
) -> None:
    """Replace a fused layer by its layers, on every rank."""
    sizes = [size // spec["tp_size"] for size in spec["original_dims"]]
    for kind in ("weight", "bias"):
        fused = f"{path}.{spec['fused_linear_name']}.{kind}"
        if fused not in parts:
            continue
        pieces = [tensor.split(sizes, dim=spec["fuse_axis"]) for tensor in parts.pop(fused)]
        for index, name in enumerate(spec["linear_names"]):
            parts[f"{path}.{name}.{kind}"] = [piece[index] for piece in pieces]
            dims[f"{path}.{name}.{kind}"] = dims.get(fused)


def _plain(name: str) -> str:
    """The name of an adapter's parameter as it is saved, without the adapter's."""
    return re.sub(r"(\.lora_(?:A|B|embedding_A|embedding_B))\.[^.]+(?=\.|$)", r"\1", name)
