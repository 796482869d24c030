"""`NeuronTrainingArguments`: transformers' `TrainingArguments`, and what Neuron adds.

The fields are a mix-in, so that configurations derived from `TrainingArguments` elsewhere (TRL's) take them too. All
problems of a set of arguments are collected and shown together.

    >>> from optimum_neuron import NeuronTrainingArguments
    >>> NeuronTrainingArguments(output_dir="out").device.type
    'neuron'
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Any

from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

from ..distributed.mesh import require_processes
from ..errors import ConfigError, NeuronError, refusal
from ..vendor import INSTALL_SDK
from .layout import TrainingNeuronConfig, combination_problems
from .peer_arguments import PeerArgumentsMixin

if TYPE_CHECKING:
    from ..hardware import Target


_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
"""Fields that are numbers of cores."""


def _field(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(kw_only=True)
class NeuronArgumentsMixin(PeerArgumentsMixin):
    """What Neuron adds to `TrainingArguments`; put it before a class that is derived from it.

    Raises:
        ConfigError: values that cannot be, or cannot be together; all of them are named.

    Example:
        ```python no-run
        @dataclasses.dataclass
        class NeuronSFTConfig(NeuronArgumentsMixin, trl.SFTConfig):
            pass
        ```
    """

    tensor_parallel_size: int = _field(1, "Cores that share each layer.")
    pipeline_parallel_size: int = _field(1, "Cores that have different layers.")
    pipeline_parallel_num_microbatches: int = _field(-1, "Parts of a batch in the pipeline; -1: chosen.")
    sequence_parallel: bool = _field(False, "Split activations between tensor-parallel regions along the sequence.")
    context_parallel_size: int = _field(1, "Cores that share each sequence.")
    zero_1: bool = _field(False, "Split optimizer states over data-parallel processes.")
    stochastic_rounding_enabled: bool = _field(
        False, "Round what is written to 16-bit floats up or down at random, as the chip can."
    )
    optimizer_use_master_weights: bool = _field(
        True, "Keep a float32 copy of 16-bit parameters for the optimizer. Nothing changes for float32 parameters."
    )
    optimizer_use_fp32_grad_acc: bool = _field(
        True, "Accumulate gradients of 16-bit parameters in float32. Nothing changes for float32 parameters."
    )
    neuron_target: str | None = _field(
        None, "Family or instance to simulate, such as trn1 or trn1.32xlarge; default: what the environment names."
    )
    max_recompiles: int = _field(8, "Training steps that may compile again with torch_compile before training stops.")
    enable_throughput_metrics: bool = _field(True, "Log tokens per second of this host.")
    enable_mfu_metrics: bool = _field(False, "Log estimates for the simulated instance, as neuron/est_*.")

    def __post_init__(self) -> None:
        self.translate_peer_arguments()
        problems = self._problems()
        if problems:
            raise ConfigError("\n".join(problems))
        if self.neuron_target is not None:
            _simulate(self.neuron_target)
        super().__post_init__()  # type: ignore[misc]  # upstream's dataclass stands behind this one
        if not self.use_cpu and self.device.type != "neuron":  # type: ignore[attr-defined]
            raise ConfigError(no_device(self.device))  # type: ignore[attr-defined]
        require_processes(self.trn_config, self.world_size)  # type: ignore[attr-defined]

    @property
    def trn_config(self) -> TrainingNeuronConfig:
        """The layout over cores."""
        given: Any = self
        return TrainingNeuronConfig(
            tensor_parallel_size=self.tensor_parallel_size,
            sequence_parallel_enabled=self.sequence_parallel,
            pipeline_parallel_size=self.pipeline_parallel_size,
            pipeline_parallel_num_microbatches=self.pipeline_parallel_num_microbatches,
            pipeline_parallel_use_zero1_optimizer=self.zero_1,
            context_parallel_size=self.context_parallel_size,
            fsdp=bool(given.fsdp),
            gradient_checkpointing=bool(given.activation_checkpointing or given.gradient_checkpointing),
        )

    def _problems(self) -> list[str]:
        given: Any = self
        layout = self.trn_config
        problems = [*layout.problems(), *_range_problems(self)]
        if all(isinstance(getattr(self, name), int) for name in _SIZES):
            problems += combination_problems(layout, given)
        if getattr(given.parallelism_config, "cp_size", 1) > 1:
            problems.append(
                refusal(
                    asked=f"ParallelismConfig(cp_size={given.parallelism_config.cp_size})",
                    found="accelerate's context parallelism",
                    why="it passes keys and values around a ring in CUDA's kernels of attention",
                    do=f"pass context_parallel_size={given.parallelism_config.cp_size} to these arguments instead",
                )
            )
        target = None
        try:
            target = _target(self.neuron_target)
        except NeuronError as problem:
            problems.append(str(problem))
        if not given.use_cpu and parse_flag_from_env("ACCELERATE_USE_CPU"):
            problems.append(
                refusal(
                    asked="training on the device neuron",
                    found="ACCELERATE_USE_CPU, which accelerate launch --cpu sets",
                    why="accelerate would have batches on the host, and the model would be on a core",
                    do="leave --cpu out, or pass use_cpu=True",
                )
            )
        if not given.use_cpu and target is not None:
            problems += _precision_problems(given, target)
        if self.stochastic_rounding_enabled and (given.torch_compile or given.use_cpu):
            what = "torch_compile" if given.torch_compile else "use_cpu"
            problems.append(
                refusal(
                    asked=f"stochastic_rounding_enabled with {what}",
                    found="two arithmetics",
                    why="only operators that run one by one on the device are rounded stochastically",
                    do="leave one of them out",
                )
            )
        if given.torch_compile_backend == "inductor" and not given.use_cpu:
            problems.append(
                refusal(
                    asked="torch_compile_backend='inductor'",
                    found="a device that Inductor has no code for",
                    why="the device's own backend checks graphs for the chip and has Inductor make host code",
                    do="leave torch_compile_backend out, which takes 'neuron'",
                )
            )
        return problems


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


def _range_problems(arguments: NeuronArgumentsMixin) -> list[str]:
    problems = []
    for name, least in (("max_recompiles", 0), *((name, 1) for name in _SIZES)):
        value = getattr(arguments, name)
        if not isinstance(value, int):
            found = f"a {type(value).__name__}"
        elif value < least:
            found = "too small"
        else:
            continue
        problems.append(refusal(asked=f"{name}={value!r}", found=found, why="it counts", do=f"pass {least} or more"))
    return problems


def _precision_problems(arguments: Any, target: Target) -> list[str]:
    from ..hardware import require_compilable, require_dtype

    problems = []
    try:
        require_compilable(target)
        if arguments.bf16 or arguments.bf16_full_eval:
            require_dtype(target, "bfloat16")
    except ConfigError as problem:
        problems.append(str(problem))
    if arguments.fp16:
        problems.append(
            refusal(
                asked=f"fp16=True on {target.name}",
                found="mixed precision with float16",
                why="accelerate scales gradients on devices that it lists, and neuron is not among them",
                do="pass bf16=True, which needs no scaling",
            )
        )
    if arguments.tf32:
        problems.append(
            refusal(
                asked=f"tf32=True on {target.name}",
                found="a switch of CUDA devices",
                why="TensorE rounds float32 operands by auto-cast, which compiled graphs do when asked",
                do="leave it out, or set OPTIMUM_NEURON_NUMERICS=emulated and OPTIMUM_NEURON_AUTO_CAST_TYPE=tf32",
            )
        )
    return problems


def _target(name: str | None) -> Target:
    from ..hardware import TARGETS, resolve_instance

    return TARGETS[resolve_instance(name).value.family]


def _simulate(name: str) -> None:
    """Let this process's cores be those of the named family or instance.

    Raises:
        ConfigError: the process has cores of another one.
    """
    from .. import env
    from ..device import placement
    from ..hardware import resolve_instance

    wanted, present = resolve_instance(name).value, placement.instance()
    if wanted == present or (name.strip().lower() == present.family):
        return
    if placement.claimed():
        raise ConfigError(
            refusal(
                asked=f"neuron_target='{name}'",
                found=f"this process has a core of {present.name}",
                why="a process simulates one instance, chosen before the device is first used",
                do=f"make the arguments before the model is moved to the device, or set "
                f"OPTIMUM_NEURON_INSTANCE={wanted.name}",
            )
        )
    env.simulate_instance(wanted.name)


def no_device(found: Any) -> str:
    """Return why training would not run on the device "neuron".

    Args:
        found: the device that would be used.
    """
    from ..device import status

    if importlib.util.find_spec("torch_neuronx") is None:
        why = "transformers looks for the module torch_neuronx before it chooses the device neuron"
        do = f"install the distribution that has it ({INSTALL_SDK}), or pass use_cpu=True"
    else:
        state = status()
        why = f"torch.neuron is not available: {state.reason}" if not state.value else "another device comes first"
        do = "see docs/device.md, or pass use_cpu=True"
    return refusal(asked="training on the device neuron", found=f"device {found}", why=why, do=do)
