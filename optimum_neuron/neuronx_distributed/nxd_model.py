"""`NxDModel`: compiled programs of a model, with the weights of each rank, on simulated cores.

    model = ModelBuilder(module).trace(args=x, tag="main").compile()
    model.set_weights(shard_checkpoint(checkpoint, module))
    model.to_neuron()
    model(x)

The programs share weights and states, and each rank is a core. Inputs are the same on all ranks, and results are those
of the first.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import tracing
from ..compiler.neff import neff_from_bytes
from ..errors import ArtifactError, AssertedConfigError, ConfigError, ShapeError, UnknownNameError
from ..files.atomic import replacing
from .compiles import CompilationArtifacts, LayoutTransformerArtifacts, compile_programs
from .executor import Call, make_executor
from .traces import TraceArtifacts

Weights = Sequence[Mapping[str, torch.Tensor]]
_ORIGIN = "a program of ModelBuilder"


class NxDModel(nn.Module):
    """Compiled programs of a model.

    Args:
        world_size: number of ranks.
        start_rank: the first rank here; all ranks are here, so it is 0.
        local_ranks_size: number of ranks here; None: all.
        layout_transformer: result of `compile_layout_transformer`.
    """

    def __init__(
        self,
        world_size: int,
        start_rank: int | None = None,
        local_ranks_size: int | None = None,
        layout_transformer: LayoutTransformerArtifacts | None = None,
    ) -> None:
        super().__init__()
        if start_rank or local_ranks_size not in (None, world_size):
            message = f"{local_ranks_size} ranks from rank {start_rank} are asked for, and all {world_size} run here."
            raise ConfigError(message, hint="Leave start_rank and local_ranks_size out.", world_size=world_size)
        self.world_size = self.local_ranks_size = world_size
        self.layout_transformer = layout_transformer
        self.loaded_on_neuron = False
        self.weights: list[dict[str, torch.Tensor]] = []
        self._traced: dict[str, TraceArtifacts] = {}
        self._compiled: dict[str, CompilationArtifacts] = {}
        self._calls: dict[str, Call] = {}
        self._needed: dict[str, bool] = {}
        self._script: torch.jit.ScriptModule | None = None

    def add(self, key: str, trace_artifacts: TraceArtifacts, compilation_artifacts: CompilationArtifacts) -> NxDModel:
        """Add a program, and return the model.

        Args:
            key: its name.
            trace_artifacts: result of `trace`.
            compilation_artifacts: result of `compile`.
        """
        if self._script is not None:
            raise ConfigError("The model is loaded, so no program can be added.", hint="Add it before to_neuron().")
        if trace_artifacts.hlo.world_size != self.world_size:
            sizes = f"{trace_artifacts.hlo.world_size} ranks, and the model has {self.world_size}"
            raise ConfigError(f"The program is of {sizes}.", hint="Trace it with the same ranks.", key=key)
        self._traced[key], self._compiled[key] = trace_artifacts, compilation_artifacts
        shapes = tuple((one.param_name, tuple(one.tensor.shape)) for one in trace_artifacts.provided_args)
        self._calls[key] = Call(shapes, trace_artifacts.hlo.entry.outputs.skeleton)
        self._needed = {one.param_name: one.is_positional for one in trace_artifacts.model_params}
        return self

    def get_available_keys(self) -> set[str]:
        """Return the names of the programs."""
        return set(self._calls)

    def get_neff(self, key: str) -> bytes:
        """Return the compiled program of a key.

        Args:
            key: its name.
        """
        return Path(self._at(self._compiled, key).neff_filepath).read_bytes()

    def get_metaneff(self, key: str) -> tracing.MetaNeff:
        """Return the tensors of a program.

        Args:
            key: its name.
        """
        return self._at(self._traced, key).metaneff

    def get_hlo(self, key: str) -> Any:
        """Return a program before it was compiled.

        Args:
            key: its name.
        """
        return self._at(self._traced, key).hlo

    @staticmethod
    def _at(found: Mapping[str, Any], key: str) -> Any:
        if key not in found:
            message = f"There is no program {key!r}."
            raise UnknownNameError(message, hint=f"Programs are {', '.join(found) or 'not in files'}.", key=key)
        return found[key]

    def set_weights(self, sharded_checkpoint: Weights) -> None:
        """Take the weights of each rank, before `to_neuron`.

        Args:
            sharded_checkpoint: for each rank its tensors by name.
        """
        if self.loaded_on_neuron:
            raise ConfigError("The model is loaded already.", hint="Call replace_weights().")
        self.weights = [dict(own) for own in sharded_checkpoint]

    def replace_weights(self, sharded_checkpoint: Weights) -> None:
        """Take other weights; states begin anew.

        Args:
            sharded_checkpoint: for each rank its tensors by name.
        """
        self._require_loaded()
        self.weights = [dict(own) for own in sharded_checkpoint]
        self._initialize()

    def to_neuron(self) -> None:
        """Load the programs on cores, one for each rank.

        Raises:
            WeightsError: weights are missing, or do not fit.
            CoreBusyError, DeviceMemoryError: the cores cannot take it.
        """
        self._initialize()
        self.loaded_on_neuron = True

    def _initialize(self) -> None:
        weights = self.weights or [{} for _ in range(self.world_size)]
        program = self.script().nxd_model
        tracing.ops.load_ranks(program.neff, weights)
        program.weights, program.is_loaded = weights, True

    @property
    def _session(self) -> Any:
        return tracing.ops.session_of_bytes(self.script().nxd_model.neff)

    def _require_loaded(self) -> None:
        if not self.loaded_on_neuron:
            message = "The model is not loaded."
            raise AssertedConfigError(message, hint="Call set_weights(), and then to_neuron().")

    def script(self) -> torch.jit.ScriptModule:
        """Return the programs as one ScriptModule, which is compiled once."""
        if self._script is None:
            if not self._traced:
                raise ConfigError("The model has no programs.", hint="Call add() first.")
            with tempfile.TemporaryDirectory() as folder:
                neff = compile_programs(
                    {key: traced.hlo for key, traced in self._traced.items()}, self._flags(), Path(folder)
                )
                content = torch.frombuffer(bytearray(neff.content), dtype=torch.uint8)
            opened = neff_from_bytes(memoryview(content.numpy()), _ORIGIN)
            tensor = tracing.ops.open_session(opened, [])
            self._script = make_executor(tensor, list(self._calls.values()), json.dumps(self._document()))
        return self._script

    def _flags(self) -> tracing.Flags:
        """Flags of all programs; -O is the highest of them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the programs were compiled
            flags = [tracing.checked_flags(one.compiler_args) for one in self._compiled.values()]
        highest = max(flags, key=lambda one: one.flags.optlevel)
        kinds = {
            (one.target.name, one.flags.auto_cast, one.flags.auto_cast_type, one.flags.implicit_integer_downcast)
            for one in flags
        }
        if len(kinds) > 1:
            message = "Programs of one model have different flags for arithmetic."
            hint = "Compile all of them with the same --auto-cast, --auto-cast-type, and --target."
            raise ConfigError(message, hint=hint, flags=[one.compiler_args for one in self._compiled.values()])
        return highest

    def _document(self) -> dict[str, Any]:
        calls = {key: {"shapes": call.shapes, "result": call.result} for key, call in self._calls.items()}
        return {"world_size": self.world_size, "calls": calls, "parameters": self._needed}

    def forward(
        self, *args: torch.Tensor, model_name: str | None = None, forward_mode: str = "default", **kwargs: torch.Tensor
    ) -> Any:
        """Run the program for inputs of such shapes.

        Args:
            *args: inputs by position.
            model_name: key of the program; None: the only one that takes them.
            forward_mode: "default": inputs are the same on all ranks, and the results are those of the first.
            **kwargs: inputs by name.

        Raises:
            ConfigError: the model is not loaded, or an argument is not known.
            ShapeError: no program takes such inputs.
        """
        self._require_loaded()
        if forward_mode != "default":
            message = f"forward_mode={forward_mode!r} is not supported: ranks have the same inputs."
            raise AssertedConfigError(message, hint="Leave forward_mode out, and pass one tensor for each input.")
        inputs = self._named(args, kwargs)
        key = self._routed(inputs, model_name)
        call, number = self._calls[key], list(self._calls).index(key)
        flat = self._session.run([inputs[name] for name, _ in call.shapes], number, batches=False)
        return tracing.rebuild(call.result, flat)

    def _named(self, args: Sequence[torch.Tensor], kwargs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        names = list(self._needed)
        inputs = dict(zip(names, args, strict=False)) | dict(kwargs)
        missing = [name for name, needed in self._needed.items() if needed and name not in inputs]
        twice = [name for name in kwargs if name in names[: len(args)]]
        unknown = [name for name in kwargs if name not in names]
        if missing or twice or unknown or len(args) > len(names):
            message = f"The inputs {', '.join(inputs)} do not fit the parameters {', '.join(names)}."
            hint = "Pass each input once, by position or by name."
            raise AssertedConfigError(message, hint=hint, missing=missing, twice=twice, unknown=unknown)
        return {name: inputs[name] for name in names if name in inputs}

    def _routed(self, inputs: Mapping[str, torch.Tensor], name: str | None) -> str:
        shapes = tuple((key, tuple(value.shape)) for key, value in inputs.items())
        fitting = [key for key, call in self._calls.items() if call.shapes == shapes]
        if not fitting:
            listing = "; ".join(f"{key} takes {call.key()}" for key, call in self._calls.items())
            given = Call(shapes, 0).key()
            message = f"No program takes {given}."
            raise ShapeError(message, hint=f"Trace the model with these shapes; {listing}.", shapes=given)
        if name is None and len(fitting) > 1:
            message = f"{', '.join(fitting)} take these inputs."
            raise AssertedConfigError(message, hint="Pass model_name.", choices=fitting)
        if name is not None and name not in fitting:
            message = f"Program {name} does not take these inputs; {', '.join(fitting)} does."
            raise AssertedConfigError(message, hint="Leave model_name out.", choices=fitting)
        return name or fitting[0]

    def read_from_neuron_buffer(self, buffer_key: str, rank: int) -> torch.Tensor:
        """Return a state of a rank, or one of its weights.

        Args:
            buffer_key: its name in the model.
            rank: the rank.

        Raises:
            UnknownNameError: the rank has no such tensor.
        """
        self._require_loaded()
        if self._is_weight(buffer_key, rank):
            return self.weights[rank][buffer_key]
        value: torch.Tensor = self._session.state_of(buffer_key, rank)
        return value.clone()

    def write_to_neuron_buffer(self, tensor: torch.Tensor, buffer_key: str, rank: int) -> None:
        """Change a state of a rank, or one of its weights; a weight loads the model again.

        Args:
            tensor: the value.
            buffer_key: its name in the model.
            rank: the rank.

        Raises:
            UnknownNameError: the rank has no such tensor, or one of another shape.
        """
        self._require_loaded()
        old = self.read_from_neuron_buffer(buffer_key, rank)
        if old.shape != tensor.shape:
            message = f"{buffer_key} is {list(old.shape)}, and the new value {list(tensor.shape)}."
            raise UnknownNameError(message, hint="Pass a tensor of that shape.", key=buffer_key)
        if self._is_weight(buffer_key, rank):
            self.weights[rank][buffer_key] = tensor.clone()
            self._initialize()
        else:
            self._session.state_of(buffer_key, rank).copy_(tensor)

    def _is_weight(self, key: str, rank: int) -> bool:
        """Whether a rank has a tensor as a weight; otherwise it has it as a state."""
        own = self.weights[rank] if 0 <= rank < len(self.weights) else {}
        states = self._session.metadata["states"]
        if not 0 <= rank < self.world_size or (key not in own and key not in states):
            message = f"Rank {rank} has no tensor {key!r}."
            hint = f"Ranks are 0 to {self.world_size - 1}; states are {', '.join(states) or 'none'}."
            raise UnknownNameError(message, hint=hint, key=key, rank=rank)
        return key not in states

    def save(self, path_to_save: str | os.PathLike[str], save_weights: bool = False) -> None:
        """Write the programs to a file, which `load` and `torch.jit.load` read.

        Args:
            path_to_save: the file.
            save_weights: write the weights too.
        """
        self.save_script(Path(path_to_save), self.weights if save_weights else [])

    def save_script(self, path: Path, weights: Weights) -> None:
        """Write the programs with these weights to a file, which appears whole or not at all."""
        script = self.script()
        kept = script.nxd_model.weights
        script.nxd_model.weights = [dict(own) for own in weights]
        needed_bytes = sum(tensor.nbytes for own in weights for tensor in own.values())
        try:
            with replacing(path, needed_bytes=needed_bytes, error=ArtifactError) as file:
                torch.jit.save(script, file)
        finally:
            script.nxd_model.weights = kept

    @classmethod
    def load(
        cls, path_to_model: str | os.PathLike[str], start_rank: int | None = None, local_ranks_size: int | None = None
    ) -> NxDModel:
        """Read a file of `save`. Call `set_weights` unless it has the weights, and then `to_neuron`.

        Args:
            path_to_model: the file.
            start_rank: the first rank here.
            local_ranks_size: number of ranks here.

        Raises:
            ArtifactError: the file is of something else.
        """
        script = torch.jit.load(os.fspath(path_to_model))
        if not hasattr(script, "describe"):
            message = f"{path_to_model} has no model of NxDModel.save."
            raise ArtifactError(message, hint="Load it with torch.jit.load.", path=str(path_to_model))
        document = json.loads(script.describe())
        model = cls(document["world_size"], start_rank, local_ranks_size)
        for key, call in document["calls"].items():
            shapes = tuple((name, tuple(shape)) for name, shape in call["shapes"])
            model._calls[key] = Call(shapes, call["result"])
        model._needed = document["parameters"]
        model.weights = script.nxd_model.weights
        model._script = script
        return model
