"""accelerate's `Accelerator` for custom training loops on the torch device "neuron", with Optimum Neuron's arguments.

It adds bfloat16 weights under a float32 optimizer, ZeRO-1 over data-parallel processes, and `trn_config`; everything
else is upstream's. Layouts that split a model need the steps of `NeuronTrainer`.

    accelerator = NeuronAccelerator(mixed_precision="FULL_BF16")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, is_neuron_available, parse_flag_from_env

from ..base.foreign import module_facts, plain_value
from ..distributed import TrainingNeuronConfig
from ..errors import ConfigError, NeuronError, invalid_choice, raise_together
from .arguments import no_device
from .optimizer import accumulate_in_float32, keep_master_weights

logger = logging.getLogger(__name__)

PRECISIONS = {"no": "no", "bf16": "bf16", "autocast_bf16": "bf16", "full_bf16": "no"}
"""accelerate's name of a precision, by its names here and in Optimum Neuron, in lower case."""
_FULL = "full_bf16"
_BACKENDS = ("xla", "amp")


class NeuronAcceleratorState(AcceleratorState):
    """accelerate's state of a run, with the layout over cores; it is shared with `AcceleratorState`."""

    def __init__(self, *positional: object, trn_config: TrainingNeuronConfig | None = None, **keywords: object) -> None:
        super().__init__(*positional, **keywords)
        if trn_config is not None or not hasattr(self, "trn_config"):
            self.trn_config = trn_config or TrainingNeuronConfig()


class NeuronAccelerator(Accelerator):
    """accelerate's `Accelerator`, with the arguments of Optimum Neuron.

    Args:
        trn_config: layout over cores; sizes above 1 need `NeuronTrainer`.
        zero_1: split optimizer states over data-parallel processes.
        mixed_precision: "no"; "bf16" or "AUTOCAST_BF16" for autocast; "FULL_BF16" for weights in bfloat16 with float32
            master weights in the optimizer.
        autocast_backend: "xla" or "amp"; there is one autocast here, so it changes nothing.

    Raises:
        ConfigError: an argument that is not supported, or there is no device "neuron".

    Example:
        ```python no-run
        accelerator = NeuronAccelerator(mixed_precision="bf16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for batch in loader:
            accelerator.backward(model(**batch).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        ```
    """

    def __init__(
        self,
        *positional: object,
        trn_config: TrainingNeuronConfig | None = None,
        zero_1: bool = False,
        mixed_precision: object = None,
        autocast_backend: str | None = None,
        **keywords: object,
    ) -> None:
        layout = trn_config or TrainingNeuronConfig()
        precision = None if mixed_precision is None else str(plain_value(mixed_precision)).lower()
        raise_together([*_layout_problems(layout), *_value_problems(precision, autocast_backend)])
        if autocast_backend is not None:
            logger.info("autocast_backend=%r changes nothing: torch.autocast is the only one.", autocast_backend)
        self._full_bf16 = precision == _FULL
        zero_1 = zero_1 or layout.pipeline_parallel_use_zero1_optimizer
        if zero_1 and keywords.get("fsdp_plugin") is None:
            keywords["fsdp_plugin"] = _zero_1_plugin()
        if self._full_bf16 and keywords.get("fsdp_plugin") is not None:
            message = "mixed_precision='FULL_BF16' cannot split optimizer states, which have the master weights."
            hint = "Pass mixed_precision='bf16', or use NeuronTrainer with zero_1=True."
            raise ConfigError(message, hint=hint, option="mixed_precision")
        named = {} if precision is None else {"mixed_precision": PRECISIONS[precision]}
        super().__init__(*positional, **named, **keywords)
        on_cpu = bool(keywords.get("cpu")) or parse_flag_from_env("ACCELERATE_USE_CPU")
        if self.device.type == "cpu" and not on_cpu and is_neuron_available():
            # accelerate has one state for a process: whoever made it first chose the device.
            logger.warning("The accelerator is on the CPU, which this process chose before; pass cpu=True to say so.")
            on_cpu = True
        if self.device.type not in ("neuron", "cpu") or (self.device.type == "cpu" and not on_cpu):
            raise no_device(self.device)
        self.state = NeuronAcceleratorState(trn_config=layout)

    @property
    def trn_config(self) -> TrainingNeuronConfig:
        """The layout over cores."""
        return self.state.trn_config

    def prepare(self, *args: object, device_placement: list[bool] | None = None) -> Any:
        """Prepare models, optimizers, and data as accelerate does; with master weights of bfloat16 parameters."""
        for one in args:
            if isinstance(one, torch.nn.Module):
                self._ready(one)
        prepared = super().prepare(*args, device_placement=device_placement)
        results = prepared if isinstance(prepared, tuple) else (prepared,)
        for one in results:
            if self._full_bf16 and isinstance(one, AcceleratedOptimizer):
                _widen(one.optimizer)
        return prepared

    def _ready(self, model: torch.nn.Module) -> None:
        if self._full_bf16:
            model.to(torch.bfloat16)
            if self.num_processes == 1:
                accumulate_in_float32(model.parameters())
        if self.trn_config.gradient_checkpointing:
            enable = module_facts(model).gradient_checkpointing_enable
            if enable is None:
                message = f"gradient_checkpointing=True needs {type(model).__name__}.gradient_checkpointing_enable."
                hint = "Remove the option of trn_config, or use torch.utils.checkpoint in the model."
                raise ConfigError(message, hint=hint, option="gradient_checkpointing")
            enable()


def _widen(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer step on master weights, and its `zero_grad` clear the gradients of the model."""
    masters, zero_masters = keep_master_weights(optimizer), optimizer.zero_grad
    if masters is None:
        return

    def zero_grad(set_to_none: bool = True) -> None:
        zero_masters(set_to_none=set_to_none)
        masters.clear_gradients()

    optimizer.zero_grad = zero_grad


def _zero_1_plugin() -> FullyShardedDataParallelPlugin | None:
    """FSDP2 that keeps a layer's weights after the forward pass; None for one process, which has all states."""
    if PartialState().num_processes == 1:
        logger.info("zero_1=True changes nothing: one process has all optimizer states.")
        return None
    return FullyShardedDataParallelPlugin(
        fsdp_version=2, reshard_after_forward=False, auto_wrap_policy="transformer_based_wrap"
    )


def _layout_problems(layout: TrainingNeuronConfig) -> list[NeuronError]:
    problems: list[NeuronError] = [*layout.problems()]
    sizes = {name: size for name, size in layout.sizes().items() if size > 1}
    if sizes:
        message = f"{', '.join(f'{name}={size}' for name, size in sizes.items())} needs the steps of NeuronTrainer."
        hint = "Use NeuronTrainer with these arguments, or data parallelism."
        problems.append(ConfigError(message, hint=hint, options=list(sizes)))
    if layout.fsdp:
        message = "trn_config with fsdp=True is not supported: accelerate has separate FSDP settings."
        hint = "Pass fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2)."
        problems.append(ConfigError(message, hint=hint, option="fsdp"))
    return problems


def _value_problems(precision: str | None, backend: str | None) -> list[NeuronError]:
    options = (("mixed_precision", precision, PRECISIONS), ("autocast_backend", backend, _BACKENDS))
    return [
        invalid_choice(name, value, choices)
        for name, value, choices in options
        if value is not None and value not in choices
    ]
