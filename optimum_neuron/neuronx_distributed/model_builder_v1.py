"""`trace.ModelBuilder`: several models that share weights, each with inputs of several shapes, as one ScriptModule.

    builder = ModelBuilder(router=None, tp_degree=2, checkpoint_loader=load)
    builder.add("main", BaseModelInstance(Model, input_output_aliases={}), example_inputs=[(x,)])
    model = builder.trace(initialize_model_weights=True)

The result finds the program by the shapes of its inputs. `nxd_model.initialize` takes the weights of each rank.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .. import tracing
from ..errors import ConfigError, NotSupportedError
from . import parallel_state
from .compiles import compile, default_flags
from .nxd_model import NxDModel
from .sharding import shard_checkpoint
from .simulated import NxDParallelState
from .traces import trace_by_position

_logger = logging.getLogger("Neuron")
_WORKDIR = "/tmp/nxd_model/"


class BaseModelInstance:
    """Makes the module of a model, as one of its ranks; subclasses make others.

    Args:
        module_cls: returns the module.
        input_output_aliases: parameters that stay on the device, each with the number of the output that is its next
            value.
    """

    def __init__(
        self, module_cls: Callable[[], nn.Module], input_output_aliases: Mapping[torch.Tensor, int] | None
    ) -> None:
        self.module_cls = module_cls
        self.module: nn.Module | None = None
        self.input_output_aliases: Any = [input_output_aliases]

    def load_module(self) -> None:
        """Make the module."""
        self.module = self.module_cls()

    def get(self, bucket_rank: int | None, **kwargs: Any) -> tuple[nn.Module, Mapping[torch.Tensor, int]]:
        """Return the module and its aliases.

        Args:
            bucket_rank: number of the shapes.
            **kwargs: options of the bucket.
        """
        assert self.module is not None, "load_module was called"
        return self.module, self.input_output_aliases[0]


class _Model:
    """A model that was added."""

    def __init__(self, instance: Any, example_inputs: Sequence[Any], compiler_args: str, bucket_config: Any) -> None:
        self.model_instance, self.example_inputs = instance, example_inputs
        self.compiler_args, self.bucket_config = compiler_args, bucket_config

    def modules(self) -> list[tuple[nn.Module, Mapping[torch.Tensor, int]]]:
        """The module and its aliases for each group of inputs."""
        self.model_instance.load_module()
        options = getattr(self.bucket_config, "bucket_kwargs", None)
        found = []
        for number in range(len(self.example_inputs)):
            own = options[number] if isinstance(options, Sequence) and options else {}
            found.append(self.model_instance.get(number, **own))
        return found


class ModelBuilder:
    """Collects models, traces them as one rank, and compiles them for all.

    Args:
        router: None; programs are found by the shapes of their inputs.
        tp_degree: number of ranks of tensor parallelism.
        checkpoint_loader: returns a whole checkpoint.
        start_rank_id: the first rank here, which is 0.
        pp_degree: number of stages.
        ep_degree: number of ranks that divide experts.
        local_ranks_size: number of ranks here, which is all.
        world_size: number of ranks.
        compiler_workdir: folder of the files; None: /tmp/nxd_model.
        master_proc_env_vars: None; set environment variables before the process starts.
        debug: has no effect, and says so.
        num_cores_per_group: number of ranks with the same heads of keys and values.
        init_custom_process_group_fn: makes more groups, before modules are made.
        logical_nc_config: physical cores of a core.
        weights_to_skip_layout_optimization: weights whose layout shall stay; there is one layout.
        compiler_flag_hook: returns the flags of a model; called with its inputs, name, and flags.
    """

    def __init__(
        self,
        router: Any,
        tp_degree: int,
        checkpoint_loader: Callable[[], Mapping[str, torch.Tensor]] | None,
        start_rank_id: int = 0,
        pp_degree: int = 1,
        ep_degree: int = 1,
        local_ranks_size: int | None = None,
        world_size: int | None = None,
        compiler_workdir: str | os.PathLike[str] | None = None,
        master_proc_env_vars: Mapping[str, str] | None = None,
        debug: Any = False,
        num_cores_per_group: int = 1,
        init_custom_process_group_fn: Callable[[], Any] | None = None,
        logical_nc_config: int = 1,
        weights_to_skip_layout_optimization: Collection[str] = (),
        compiler_flag_hook: Callable[..., str] | None = None,
    ) -> None:
        if world_size is not None and local_ranks_size is None:
            raise ConfigError("world_size is given without local_ranks_size.", hint="Pass both.")
        size = world_size or tp_degree * pp_degree * ep_degree
        refused = {
            "router": router,
            "start_rank_id": start_rank_id,
            "local_ranks_size": local_ranks_size if local_ranks_size != size else None,
            "master_proc_env_vars": master_proc_env_vars,
            "compiler_flag_hook": compiler_flag_hook,
        }
        if given := [name for name, value in refused.items() if value]:
            message = f"{', '.join(given)} cannot be used: all {size} ranks run in this process."
            raise NotSupportedError(message, hint="Leave it out; compiler_args of add() has flags.", options=given)
        if debug:
            _logger.warning("debug=%s has no effect: programs keep the names of modules in any case", debug)
        self.tp_degree, self.pp_degree, self.ep_degree, self.world_size = tp_degree, pp_degree, ep_degree, size
        self.checkpoint_loader, self.compiler_workdir = checkpoint_loader, str(compiler_workdir or _WORKDIR)
        self.num_cores_per_group, self.logical_nc_config = num_cores_per_group, logical_nc_config
        self.init_custom_process_group_fn = init_custom_process_group_fn
        self.weights_to_skip_layout_optimization = set(weights_to_skip_layout_optimization)
        self.model_collection: dict[str, _Model] = {}

    def add(
        self,
        key: str,
        model_instance: Any,
        example_inputs: Sequence[tuple[torch.Tensor, ...]],
        compiler_args: str | None = None,
        bucket_config: Any = None,
        priority_model_idx: int | None = None,
    ) -> ModelBuilder:
        """Add a model, and return the builder.

        Args:
            key: its name.
            model_instance: makes it.
            example_inputs: groups of inputs, each with its own program.
            compiler_args: flags of neuronx-cc.
            bucket_config: options for each group; programs are found by the shapes of inputs.
            priority_model_idx: the group that may choose the layout of weights; there is one layout.
        """
        groups = list(example_inputs)
        if not groups or not all(isinstance(one, tuple) for one in groups):
            message = f"example_inputs of {key} is not a list of tuples of tensors."
            raise ConfigError(message, hint="Pass a list with a tuple for each group of shapes.", key=key)
        self.model_collection[key] = _Model(model_instance, groups, default_flags(compiler_args), bucket_config)
        return self

    def _groups(self) -> NxDParallelState:
        return NxDParallelState(
            world_size=self.world_size,
            tensor_model_parallel_size=self.tp_degree,
            pipeline_model_parallel_size=self.pp_degree,
            expert_model_parallel_size=self.ep_degree,
            lnc_size=self.logical_nc_config,
        )

    def _prepare(self) -> None:
        """Make the groups beside those of `NxDParallelState`."""
        if self.num_cores_per_group > 1:
            parallel_state.initialize_kv_group(self.num_cores_per_group, sequential_ranks_in_group=True)
        if self.init_custom_process_group_fn is not None:
            self.init_custom_process_group_fn()

    def trace(self, initialize_model_weights: bool = True, dry_run: bool = False) -> torch.jit.ScriptModule | None:
        """Trace and compile all models, and return them as one ScriptModule.

        Args:
            initialize_model_weights: load the weights of `checkpoint_loader`; otherwise `nxd_model.initialize` does.
            dry_run: trace only, and return None.

        Raises:
            CaptureError: the code depends on values.
            UnsupportedOperatorError: an operator is not supported.
        """
        if not self.model_collection:
            raise ConfigError("There are no models to trace.", hint="Call add() first.")
        built = NxDModel(self.world_size)
        with self._groups():
            self._prepare()
            for key, model in self.model_collection.items():
                for number, (module, aliases) in enumerate(model.modules()):
                    name = key if len(model.example_inputs) == 1 else f"{key}_{number}"
                    traced = trace_by_position(module, model.example_inputs[number], aliases or {})
                    if not dry_run:
                        flags, folder = model.compiler_args, self.compiler_workdir
                        built.add(name, traced, compile(traced.hlo, traced.metaneff, folder, flags, name))
        if dry_run:
            return None
        script = built.script()
        if initialize_model_weights:
            program = script.nxd_model
            program.weights = self.shard_checkpoint()
            tracing.ops.load_ranks(program.neff, program.weights)
            program.is_loaded = True
        return script

    def shard_checkpoint(self, serialize_path: str | os.PathLike[str] | None = None) -> list[dict[str, torch.Tensor]]:
        """Return the part of each rank of the checkpoint.

        Args:
            serialize_path: folder for `tp<n>_sharded_checkpoint.safetensors`.
        """
        if self.checkpoint_loader is None:
            raise ConfigError("There is no checkpoint_loader.", hint="Pass a function that returns a checkpoint.")
        with self._groups():
            self._prepare()
            module, _ = next(iter(self.model_collection.values())).modules()[0]
            return shard_checkpoint(dict(self.checkpoint_loader()), module, serialize_path=serialize_path)
