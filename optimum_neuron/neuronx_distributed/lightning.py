"""Lightning's `Trainer` with NxD's parallelism: its strategy, plugins, and module, by NxD's names.

    strategy = NeuronXLAStrategy(nxd_config)
    trainer = Trainer(strategy=strategy, plugins=[NeuronXLAPrecisionPlugin()], callbacks=[NeuronTQDMProgressBar()])
    trainer.fit(NeuronLTModule(nxd_config, torch.optim.AdamW, scheduler, model_fn=Model), loader)

torchrun starts the processes. Models are built, moved, and averaged by `initialize_parallel_model` and
`initialize_parallel_optimizer`; the strategy makes the groups, and Lightning does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from ..base import env
from ..errors import ConfigError
from . import checkpointing, configuration, parallel_state
from .moving import get_device, mark_step

try:
    from lightning.fabric.plugins import TorchCheckpointIO
    from lightning.pytorch import LightningModule
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.plugins import Precision
    from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
    from lightning.pytorch.strategies import DDPStrategy
except ImportError as error:
    message = "neuronx_distributed.lightning needs Lightning."
    raise ConfigError(message, hint="pip install 'optimum-neuron-sim[lightning]'", package="lightning") from error


class NeuronXLAAccelerator(Accelerator):
    """The simulated core of a process."""

    def setup_device(self, device: torch.device) -> None:
        """Do nothing: the core is the process's."""

    def teardown(self) -> None:
        """Do nothing: the core stays the process's."""

    @staticmethod
    def parse_devices(devices: Any) -> int:
        """Return how many processes a machine has."""
        return env.local_world_size() or 1

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return a device for each process of a machine."""
        return [torch.device(get_device())] * int(devices)

    @staticmethod
    def auto_device_count() -> int:
        """Return how many processes a machine has."""
        return env.local_world_size() or 1

    @staticmethod
    def is_available() -> bool:
        """Return True: cores are simulated."""
        return True

    @staticmethod
    def name() -> str:
        """Return its name."""
        return "neuron_xla"


class NeuronCheckpointIO(TorchCheckpointIO):
    """Files of a checkpoint, one part for each rank.

    Args:
        save_load_xser: write one file for each tensor.
        weights_only: files are read without executing code in them in either case.
    """

    def __init__(self, save_load_xser: bool = True, weights_only: bool = False) -> None:
        super().__init__()
        self.save_load_xser, self.weights_only = save_load_xser, weights_only

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None, **options: Any) -> None:
        """Write this rank's part; all ranks call it.

        Args:
            checkpoint: states of the model and of the trainer.
            path: the folder.
            storage_options: must be None.
            **options: `master_dp_only` of `parallel_layers.save`.
        """
        if storage_options is not None:
            message = f"storage_options is {storage_options!r}."
            raise ConfigError(message, hint="Leave it out: checkpoints are folders.", option="storage_options")
        checkpointing.save(checkpoint, path, save_xser=self.save_load_xser, **options)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = None, **options: Any) -> Any:
        """Read this rank's part; all ranks call it.

        Args:
            path: the folder.
            map_location: tensors are on the CPU.
            weights_only: files are read without executing code in them.
            **options: `master_dp_only` of `parallel_layers.load`.
        """
        return checkpointing.load(path, load_xser=self.save_load_xser, **options)


class NeuronXLAStrategy(DDPStrategy):
    """The groups of model parallelism, and a part of the data for each rank of data parallelism.

    Args:
        nxd_config: what `neuronx_distributed_config` returned.
        tensor_parallel_size: without `nxd_config`, number of ranks that divide tensors.
        pipeline_parallel_size: likewise, number of stages.
        expert_parallel_size: likewise, number of ranks that divide experts.
        context_parallel_size: likewise, number of ranks that divide sequences.
        checkpoint_io: writes checkpoints.
        save_load_xser: without `checkpoint_io`, write one file for each tensor.
    """

    strategy_name = "neuron_xla"

    def __init__(
        self,
        nxd_config: Mapping[str, Any] | None = None,
        tensor_parallel_size: int = 1,
        pipeline_parallel_size: int = 1,
        expert_parallel_size: int = 1,
        context_parallel_size: int = 1,
        checkpoint_io: NeuronCheckpointIO | None = None,
        save_load_xser: bool = True,
    ) -> None:
        is_launched = env.world_size() is not None
        super().__init__(
            accelerator=NeuronXLAAccelerator(),
            cluster_environment=TorchElasticEnvironment() if is_launched else LightningEnvironment(),
            checkpoint_io=checkpoint_io or NeuronCheckpointIO(save_load_xser),
            process_group_backend="gloo" if parallel_state.cpu_mode() else "xla",
        )
        own = {
            "tensor_parallel_size": tensor_parallel_size,
            "pipeline_parallel_size": pipeline_parallel_size,
            "expert_parallel_size": expert_parallel_size,
            "context_parallel_size": context_parallel_size,
        }
        degrees = {name: int((nxd_config or own)[name]) for name in own}
        self.nxd_config = nxd_config
        self.tensor_parallel_size = degrees["tensor_parallel_size"]
        self.pipeline_parallel_size = degrees["pipeline_parallel_size"]
        self.expert_parallel_size = degrees["expert_parallel_size"]
        self.context_parallel_size = degrees["context_parallel_size"]

    @property
    def root_device(self) -> torch.device:
        """The device of this process."""
        return torch.device(get_device())

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The part of the data of a rank of data parallelism."""
        return {"num_replicas": parallel_state.DATA.size(), "rank": parallel_state.DATA.rank()}

    def setup_environment(self) -> None:
        """Begin torch.distributed, and make the groups."""
        super().setup_environment()
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=self.tensor_parallel_size,
                pipeline_model_parallel_size=self.pipeline_parallel_size,
                expert_model_parallel_size=self.expert_parallel_size,
                context_parallel_size=self.context_parallel_size,
            )
        self.data_parallel_rank, self.data_parallel_size = parallel_state.DATA.rank(), parallel_state.DATA.size()
        self.tensor_parallel_rank = parallel_state.TENSOR.rank()
        self.pipeline_parallel_rank = parallel_state.PIPELINE.rank()

    def setup_distributed(self) -> None:
        """Begin torch.distributed without a device, which torch would compare with its one accelerator."""
        place = self.cluster_environment
        if place is not None and not dist.is_initialized():
            dist.init_process_group(
                self._process_group_backend,
                init_method=f"tcp://{place.main_address}:{place.main_port}",
                rank=place.global_rank(),
                world_size=place.world_size(),
            )
        super().setup_distributed()

    def configure_ddp(self) -> None:
        """Do nothing: the optimizer averages gradients."""

    def model_to_device(self) -> None:
        """Do nothing: `initialize_parallel_model` moves the model."""

    def determine_ddp_device_ids(self) -> None:
        """Return None: processes have one device."""

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Move a batch to the core; pipelines move their own.

        Args:
            batch: the batch.
            device: the device; None: that of the process.
            dataloader_idx: as of Lightning.
        """
        chosen = torch.device("cpu") if self.pipeline_parallel_size > 1 else device or self.root_device
        return super().batch_to_device(batch, chosen, dataloader_idx)

    def save_checkpoint(self, checkpoint: Any, filepath: Any, storage_options: Any = None) -> None:
        """Write this rank's part of a checkpoint; all ranks call it.

        Args:
            checkpoint: states of the model and of the trainer.
            filepath: the folder.
            storage_options: must be None.
        """
        self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options, master_dp_only=not self._has_zero)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        """Read this rank's part of a checkpoint; all ranks call it.

        Args:
            checkpoint_path: the folder.
            weights_only: files are read without executing code in them.
        """
        return self.checkpoint_io.load_checkpoint(checkpoint_path, master_dp_only=not self._has_zero)

    @property
    def _has_zero(self) -> bool:
        return bool((self.nxd_config or {}).get("optimizer_config", {}).get("zero_one_enabled", False))

    def teardown(self) -> None:
        """End the precision, the files, and the environment; the model stays where it is."""
        self.precision_plugin.teardown()
        self.checkpoint_io.teardown()
        assert self.cluster_environment is not None
        self.cluster_environment.teardown()


class NeuronXLAPrecisionPlugin(Precision):
    """Steps of an optimizer that averages and clips gradients itself."""

    def optimizer_step(self, optimizer: Any, model: Any, closure: Callable[[], Any], **kwargs: Any) -> Any:
        """Compute the gradients, and step.

        Args:
            optimizer: what `initialize_parallel_optimizer` returned.
            model: not used.
            closure: computes the loss and its gradients; with manual optimization nothing.
            **kwargs: arguments of the optimizer's step.
        """
        result = closure()
        optimizer.step(**kwargs)
        mark_step()
        return result


class NeuronLTModule(LightningModule):
    """A module whose model and optimizer are those of `nxd_config`; `training_step` is the user's.

    Args:
        nxd_config: what `neuronx_distributed_config` returned.
        opt_cls: the optimizer.
        scheduler_cls: called with the optimizer.
        model_args: arguments of `model_fn`.
        model_kwargs: likewise.
        opt_args: not used by optimizers of torch; must be empty.
        opt_kwargs: arguments of the optimizer.
        scheduler_args: arguments of the scheduler.
        scheduler_kwargs: likewise.
        model_fn: builds the model.
        grad_accum_steps: for `training_step`.
        train_batch_size: likewise.
        logging_interval: likewise.
        log_rank0: the first stage's rank shows progress.
        manual_opt: `training_step` computes gradients and steps.
    """

    def __init__(
        self,
        nxd_config: dict[str, Any],
        opt_cls: Callable[..., torch.optim.Optimizer],
        scheduler_cls: Callable[..., Any],
        model_args: tuple[Any, ...] = (),
        model_kwargs: Mapping[str, Any] | None = None,
        opt_args: tuple[Any, ...] = (),
        opt_kwargs: Mapping[str, Any] | None = None,
        scheduler_args: tuple[Any, ...] = (),
        scheduler_kwargs: Mapping[str, Any] | None = None,
        model_fn: Callable[..., torch.nn.Module] | None = None,
        grad_accum_steps: int = 1,
        train_batch_size: int = 16,
        logging_interval: int = 1,
        log_rank0: bool = False,
        manual_opt: bool = True,
    ) -> None:
        super().__init__()
        if opt_args:
            message = f"opt_args is {opt_args!r}."
            raise ConfigError(message, hint="Pass opt_kwargs.", option="opt_args")
        self.nxd_config, self.model_fn = nxd_config, model_fn
        self.opt_cls, self.scheduler_cls = opt_cls, scheduler_cls
        self.model_args, self.model_kwargs = model_args, dict(model_kwargs or {})
        self.opt_kwargs, self.scheduler_args = dict(opt_kwargs or {}), scheduler_args
        self.scheduler_kwargs, self.grad_accum_steps = dict(scheduler_kwargs or {}), grad_accum_steps
        self.train_batch_size, self.logging_interval = train_batch_size, logging_interval
        self.log_rank0, self.automatic_optimization = log_rank0, not manual_opt

    def setup(self, stage: str | None = None, include_buffers: bool = False) -> None:
        """Build the model.

        Args:
            stage: as of Lightning.
            include_buffers: of `initialize_parallel_model`.
        """
        if self.model_fn is None:
            raise ConfigError("There is no model.", hint="Pass model_fn, or override setup().", option="model_fn")
        self.model = configuration.initialize_parallel_model(
            self.nxd_config, self.model_fn, include_buffers, *self.model_args, **self.model_kwargs
        )
        self.averaged_loss = torch.zeros(1, device=get_device())
        self.print_pp_rank = 0 if self.log_rank0 else self.trainer.strategy.pipeline_parallel_size - 1

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its scheduler."""
        groups = self.get_param_groups_by_weight_decay()
        optimizer = configuration.initialize_parallel_optimizer(
            self.nxd_config, self.opt_cls, groups, **self.opt_kwargs
        )
        scheduler = self.scheduler_cls(optimizer, *self.scheduler_args, **self.scheduler_kwargs)
        return [optimizer], [{"scheduler": scheduler}]

    def get_param_groups_by_weight_decay(self) -> list[dict[str, Any]]:
        """Return the parameters in two groups; biases and norms have no weight decay."""
        named = list(self.model.named_parameters())
        is_free = [any(word in name for word in ("bias", "norm")) for name, _ in named]
        chosen = [
            [one for (_, one), free in zip(named, is_free, strict=True) if free is kind] for kind in (False, True)
        ]
        return [{"params": chosen[0], "weight_decay": 0.01}, {"params": chosen[1], "weight_decay": 0.0}]

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the optimizer clips."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's parameters under its own names."""
        return self.model.named_parameters(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's states under its own names."""
        return self.model.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load states of the model.

        Args:
            state_dict: the states.
            strict: require the same names.
            assign: as of torch.
        """
        return self.model.load_state_dict(state_dict, strict=strict, assign=assign)
