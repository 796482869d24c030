"""`NeuronTrainingArguments`: transformers' `TrainingArguments` with the fields of Neuron.

The fields are a mix-in, so that configurations derived from `TrainingArguments` elsewhere (TRL's) take them too. All
problems of a set of arguments are collected and shown together.

    >>> from optimum_neuron import NeuronTrainingArguments
    >>> NeuronTrainingArguments(output_dir="out").device.type
    'neuron'
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
from typing import Any

from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

from ..base.vendor import INSTALL_SDK
from ..distributed import TrainingNeuronConfig, combination_problems, conflict, require_processes
from ..errors import ConfigError, NeuronError, raise_together
from ..hardware import TARGETS, Target, require_compilable, require_dtype, resolve_instance
from .peer_arguments import PeerArgumentsMixin

logger = logging.getLogger(__name__)


def _field(default: object, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(kw_only=True)
class NeuronArgumentsMixin(PeerArgumentsMixin):
    """The fields that Neuron adds to `TrainingArguments`; put it before a class that is derived from it.

    Raises:
        ConfigError: values out of range, or options that exclude each other; all of them are named.

    Example:
        ```python no-run
        @dataclasses.dataclass
        class NeuronSFTConfig(NeuronArgumentsMixin, trl.SFTConfig):
            pass
        ```
    """

    tensor_parallel_size: int = _field(1, "Cores that share each layer.")
    pipeline_parallel_size: int = _field(1, "Cores that have different layers.")
    pipeline_parallel_num_microbatches: int = _field(-1, "Microbatches of the pipeline; -1: chosen.")
    sequence_parallel: bool = _field(False, "Split activations between tensor-parallel regions along the sequence.")
    context_parallel_size: int = _field(1, "Cores that share each sequence.")
    zero_1: bool = _field(False, "Split optimizer states over data-parallel processes.")
    stochastic_rounding_enabled: bool = _field(
        False, "Round writes to 16-bit floats up or down at random, as the chip can."
    )
    optimizer_use_master_weights: bool = _field(
        True, "Keep a float32 copy of 16-bit parameters for the optimizer. Nothing changes for float32 parameters."
    )
    optimizer_use_fp32_grad_acc: bool = _field(
        True, "Accumulate gradients of 16-bit parameters in float32. Nothing changes for float32 parameters."
    )
    neuron_target: str | None = _field(
        None, "Family or instance to simulate, such as trn1 or trn1.32xlarge; default: that of the environment."
    )
    max_recompiles: int = _field(8, "Training steps that may compile again with torch_compile before training stops.")
    enable_throughput_metrics: bool = _field(True, "Log tokens per second of this host.")
    enable_mfu_metrics: bool = _field(False, "Log estimates for the simulated instance, as neuron/est_*.")

    def __post_init__(self) -> None:
        self.translate_peer_arguments()
        raise_together(self._problems())
        if self.neuron_target is not None:
            _simulate(self.neuron_target)
        super().__post_init__()  # type: ignore[misc]  # upstream's dataclass stands behind this one
        if not self.use_cpu and self.device.type != "neuron":  # type: ignore[attr-defined]
            raise no_device(self.device)  # type: ignore[attr-defined]
        sizes = require_processes(self.trn_config, self.world_size)  # type: ignore[attr-defined]
        if self.zero_1 and sizes.replicas == 1:
            logger.info("zero_1=True changes nothing: one replica of the model has all optimizer states.")
            self.zero_1 = False

    @property
    def trn_config(self) -> TrainingNeuronConfig:
        """The layout over cores."""
        upstream: Any = self
        return TrainingNeuronConfig(
            tensor_parallel_size=self.tensor_parallel_size,
            sequence_parallel_enabled=self.sequence_parallel,
            pipeline_parallel_size=self.pipeline_parallel_size,
            pipeline_parallel_num_microbatches=self.pipeline_parallel_num_microbatches,
            pipeline_parallel_use_zero1_optimizer=self.zero_1,
            context_parallel_size=self.context_parallel_size,
            fsdp=bool(upstream.fsdp),
            # transformers 5.23 added the first name.
            gradient_checkpointing=bool(
                getattr(upstream, "activation_checkpointing", False) or upstream.gradient_checkpointing
            ),
        )

    def _problems(self) -> list[NeuronError]:
        upstream: Any = self
        layout = self.trn_config
        problems: list[NeuronError] = [*layout.problems(), *_range_problems(self)]
        if all(isinstance(size, int) for size in layout.sizes().values()):
            problems += combination_problems(layout, upstream)
        parallelism = upstream.parallelism_config
        if parallelism is not None and (size := parallelism.cp_size) > 1:
            value, reason = f"ParallelismConfig(cp_size={size})", "accelerate's attention needs CUDA's kernels"
            hint = f"Pass context_parallel_size={size} to these arguments instead."
            problems.append(_unsupported("parallelism_config", value, reason=reason, hint=hint))
        if self.stochastic_rounding_enabled and (upstream.torch_compile or upstream.use_cpu):
            other = "torch_compile" if upstream.torch_compile else "use_cpu"
            reason = "only operators that run one by one on the device are rounded stochastically"
            problems.append(conflict("stochastic_rounding_enabled", other, reason=reason))
        target = None
        try:
            target = TARGETS[resolve_instance(self.neuron_target).value.family]
        except NeuronError as problem:
            problems.append(problem)
        return problems if upstream.use_cpu else [*problems, *_device_problems(upstream, target)]


@dataclasses.dataclass
class NeuronTrainingArguments(NeuronArgumentsMixin, TrainingArguments):
    """transformers' `TrainingArguments`, nothing removed, and the fields of `NeuronArgumentsMixin`.

    Example:
        ```python
        from optimum_neuron import NeuronTrainingArguments

        arguments = NeuronTrainingArguments(output_dir="out", learning_rate=1e-4, bf16=True)
        assert arguments.device.type == "neuron" and arguments.trn_config.tensor_parallel_size == 1
        ```
    """


def _range_problems(arguments: NeuronArgumentsMixin) -> list[NeuronError]:
    problems: list[NeuronError] = []
    for name, least in (("max_recompiles", 0), *((name, 1) for name in arguments.trn_config.sizes())):
        value = getattr(arguments, name)
        if not isinstance(value, int) or value < least:
            message = f"{name} is {value!r}, but must be an integer of at least {least}."
            problems.append(ConfigError(message, hint=f"Pass {least} or more.", option=name, value=value))
    return problems


def _unsupported(option: str, value: str, *, reason: str, hint: str) -> ConfigError:
    return ConfigError(f"{value} is not supported: {reason}.", hint=hint, option=option)


def _device_problems(arguments: TrainingArguments, target: Target | None) -> list[NeuronError]:
    """Return the problems of training on the device, and not on the host."""
    problems: list[NeuronError] = []
    if parse_flag_from_env("ACCELERATE_USE_CPU"):
        value, reason = "ACCELERATE_USE_CPU (accelerate launch --cpu)", "batches would be on the host, not on a core"
        hint = "Remove --cpu, or pass use_cpu=True."
        problems.append(_unsupported("ACCELERATE_USE_CPU", value, reason=reason, hint=hint))
    try:
        if target is not None:
            require_compilable(target)
            if arguments.bf16 or arguments.bf16_full_eval:
                require_dtype(target, "bfloat16")
    except ConfigError as problem:
        problems.append(problem)
    if arguments.fp16:
        reason, hint = "accelerate does not scale gradients on this device", "Pass bf16=True, which needs no scaling."
        problems.append(_unsupported("fp16", "fp16=True", reason=reason, hint=hint))
    if arguments.tf32:
        hint = "Remove it, or set OPTIMUM_NEURON_NUMERICS=emulated and OPTIMUM_NEURON_AUTO_CAST_TYPE=tf32."
        problems.append(_unsupported("tf32", "tf32=True", reason="it is a switch of CUDA devices", hint=hint))
    if arguments.torch_compile_backend == "inductor":
        value, reason = "torch_compile_backend='inductor'", "Inductor has no code for the device"
        hint = "Remove it; the default is 'neuron'."
        problems.append(_unsupported("torch_compile_backend", value, reason=reason, hint=hint))
    return problems


def _simulate(name: str) -> None:
    """Give this process the cores of a family or instance."""
    from ..base import env
    from ..device import placement

    target, present = resolve_instance(name).value, placement.instance()
    if target == present or (name.strip().lower() == present.family):
        return
    if placement.claimed():
        message = f"neuron_target is '{name}', but this process already uses a core of {present.name}."
        hint = f"Create the arguments before the device is used, or set OPTIMUM_NEURON_INSTANCE={target.name}."
        raise ConfigError(message, hint=hint, option="neuron_target", value=name, present=present.name)
    env.simulate_instance(target.name)


def no_device(device: Any) -> ConfigError:
    """Return the error for training that would not run on the device "neuron"."""
    from ..compiler.lower import probe_compiler
    from ..device import status

    hint, state, missing = "See docs/device.md, or pass use_cpu=True.", status(), None
    if importlib.util.find_spec("torch_neuronx") is None:
        missing = "torch_neuronx"
        reason = "transformers looks for the module torch_neuronx before it chooses neuron"
        hint = f"Install it ({INSTALL_SDK}), or pass use_cpu=True."
    elif not state.value:
        reason = f"torch.neuron is not available: {state.reason}"
    elif device.type != "cpu":
        reason = "another device comes first"
    elif probe_compiler() is None:
        reason = "the device is built by a C++ compiler, and none works here"
        hint = "Install g++ or clang++, or set CXX to one, or pass use_cpu=True."
    else:
        reason = "this process chose the CPU before"
        hint = "Make these arguments before Accelerator(cpu=True) and the like, or pass use_cpu=True."
    message = f"Training would run on the device {device}, not on neuron: {reason}."
    return ConfigError(message, hint=hint, option="use_cpu", device=str(device), missing=missing)
