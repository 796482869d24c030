"""`parallel_model_trace`: a function makes the model of each rank, with its weights, and one program runs all ranks.

model = parallel_model_trace(make_model, x, tp_degree=2)
parallel_model_save(model, "folder")
model = parallel_model_load("folder")
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, NotSupportedError, WeightsError
from .compiles import compile
from .nxd_model import NxDModel
from .simulated import NxDParallelState
from .traces import TraceArtifacts, trace_by_position

_KEY = "graph"


class TensorParallelNeuronModel(nn.Module):
    """A model on the cores of its ranks, with inputs and results on the CPU."""

    def __init__(self, nxd_model: NxDModel) -> None:
        super().__init__()
        self.nxd_model = nxd_model

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Run the model.

        Args:
            *tensors: inputs, by position.
        """
        return self.nxd_model(*tensors)


def parallel_model_trace(
    func: Callable[[], Any],
    example_inputs: torch.Tensor | tuple[torch.Tensor, ...],
    states: Any = None,
    compiler_workdir: str | os.PathLike[str] | None = None,
    compiler_args: str | None = None,
    inline_weights_to_neff: bool = True,
    bucket_config: Any = None,
    tp_degree: int = 1,
    max_parallel_compilations: int | None = None,
    spmd_mode: bool = False,
    checkpoint_loader_callable: Callable[[], Mapping[str, torch.Tensor]] | None = None,
    force_custom_init_on_device: bool = False,
    serialization_path: str | os.PathLike[str] | None = None,
) -> TensorParallelNeuronModel:
    """Trace the model of each rank, compile it, and load it.

    Args:
        func: returns the model of a rank with its weights, and the parameters that stay on the device, each with the
            number of the output that is its next value. It is called once for each rank.
        example_inputs: inputs, by position.
        states: None; `func` returns them.
        compiler_workdir: folder of the files; None: /tmp/nxd_models.
        compiler_args: flags of neuronx-cc.
        inline_weights_to_neff: weights belong to the model; they are beside its program in either case.
        bucket_config: None; ModelBuilder traces several shapes.
        tp_degree: number of ranks.
        max_parallel_compilations: number of compiles at a time; there is one.
        spmd_mode: weights are of `checkpoint_loader_callable`, not of `func`.
        checkpoint_loader_callable: returns a whole checkpoint, for spmd_mode.
        force_custom_init_on_device: not used; modules are made on the CPU.
        serialization_path: folder that the model is saved to.

    Raises:
        ConfigError: ranks have different programs, or an argument cannot be used.
        CaptureError: the code depends on values.
    """
    if states is not None or bucket_config is not None:
        hint = "Return states from func, and trace several shapes with ModelBuilder."
        raise NotSupportedError("parallel_model_trace takes no states and no bucket_config.", hint=hint)
    if spmd_mode and checkpoint_loader_callable is None:
        message = "spmd_mode=True needs checkpoint_loader_callable."
        raise ConfigError(message, hint="Pass a function that returns a whole checkpoint.", option="spmd_mode")
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    whole = checkpoint_loader_callable() if spmd_mode and checkpoint_loader_callable is not None else None
    traces, weights = [], []
    for rank in range(tp_degree):
        with NxDParallelState(world_size=tp_degree, rank=rank, tensor_model_parallel_size=tp_degree):
            traced, own = _of_rank(func, inputs, whole, rank)
        traces.append(traced)
        weights.append(own)
    texts = [traced.hlo.SerializeToString() for traced in traces]
    if different := [rank for rank, text in enumerate(texts) if text != texts[0]]:
        message = f"The program of rank {different[0]} differs from that of rank 0."
        hint = "Let code not depend on the number of the rank: layers of NxD do not, and SPMDRank is a weight."
        raise NotSupportedError(message, hint=hint, ranks=different)
    divided = {name for name in weights[0] if any(not torch.equal(weights[0][name], own[name]) for own in weights)}
    program = dataclasses.replace(traces[0].hlo, divided=divided | set(traces[0].hlo.divided))
    traced = dataclasses.replace(traces[0], hlo=program)
    built = NxDModel(tp_degree).add(
        _KEY, traced, compile(program, traced.metaneff, compiler_workdir, compiler_args, _KEY)
    )
    built.set_weights(weights)
    built.to_neuron()
    model = TensorParallelNeuronModel(built)
    if serialization_path is not None:
        parallel_model_save(model, serialization_path)
    return model


def _of_rank(
    func: Callable[[], Any], inputs: tuple[torch.Tensor, ...], whole: Mapping[str, torch.Tensor] | None, rank: int
) -> tuple[TraceArtifacts, dict[str, torch.Tensor]]:
    """The trace of a rank, and its weights."""
    from .sharding import parts_of, prepared

    made = func()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], nn.Module):
        message = f"func returned a {type(made).__name__}, not a module and its aliases."
        raise ConfigError(message, hint="Return (model, {}).", option="func")
    module, aliases = made
    if not isinstance(aliases, Mapping):
        raise ConfigError("The aliases that func returned are no dictionary.", hint="Return (model, {}).")
    own = dict(module.state_dict()) if whole is None else parts_of(prepared(whole, module), module, rank)
    return trace_by_position(module, inputs, aliases), {name: value.detach().clone() for name, value in own.items()}


def _file(folder: Path, rank: int) -> Path:
    return folder / f"tp_{rank}.pt"


def parallel_model_save(model: object, save_dir: str | os.PathLike[str]) -> None:
    """Write a model to a folder, a file `tp_<n>.pt` for each rank: the program, and that rank's weights.

    Args:
        model: result of `parallel_model_trace`.
        save_dir: the folder.
    """
    if not isinstance(model, TensorParallelNeuronModel):
        message = f"A {type(model).__name__} is no traced model of several ranks."
        raise ConfigError(message, hint="Pass the result of parallel_model_trace.")
    folder = Path(save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for rank, own in enumerate(model.nxd_model.weights):
        model.nxd_model.save_script(_file(folder, rank), [own])


def parallel_model_load(model_dir: str | os.PathLike[str]) -> TensorParallelNeuronModel:
    """Read a model from a folder of `parallel_model_save`, and load it.

    Args:
        model_dir: the folder.

    Raises:
        WeightsError: the file of a rank is missing.
    """
    folder = Path(model_dir)
    if not _file(folder, 0).exists():
        message = f"{folder} has no tp_0.pt."
        raise WeightsError(message, hint="Name a folder of parallel_model_save.", folder=str(folder))
    model = NxDModel.load(_file(folder, 0))
    missing = [_file(folder, rank).name for rank in range(model.world_size) if not _file(folder, rank).exists()]
    if missing:
        message = f"{folder} has no {', '.join(missing)}, and the model has {model.world_size} ranks."
        raise WeightsError(message, hint="Copy the whole folder.", missing=missing, world_size=model.world_size)
    weights, described = [*model.weights], json.loads(model.script().describe())
    for rank in range(1, model.world_size):
        script = torch.jit.load(os.fspath(_file(folder, rank)))
        if json.loads(script.describe()) != described:
            message = f"{_file(folder, rank).name} is of another model than tp_0.pt."
            raise WeightsError(message, hint="Save the model again, to an empty folder.", rank=rank)
        weights += script.nxd_model.weights
    model.set_weights(weights)
    model.to_neuron()
    return TensorParallelNeuronModel(model)
