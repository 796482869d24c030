"""Whether gradients and the optimizer's states fit in the free memory, checked before the first step.

Activations come on top and depend on the batch; the device counts them as they are allocated. Bytes are simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..base.transformers_types import TrainingArguments
from ..base.wording import memory_table
from ..distributed import narrow
from ..errors import DeviceMemoryError

STATES_PER_PARAMETER: Mapping[str, int] = {
    "Adagrad": 1,
    "Adam": 2,
    "AdamW": 2,
    "NAdam": 2,
    "RAdam": 2,
    "RMSprop": 1,
    "SGD": 0,
}
"""Tensors of a parameter's size that an optimizer keeps (torch docs, `torch.optim`); momentum adds one to SGD."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes that training adds to the weights on a core."""

    gradients: int
    """Bytes of one gradient for each trainable parameter."""
    optimizer_states: int
    """Bytes of the optimizer's states; 0 if they are unknown."""
    master_weights: int
    """Bytes of float32 copies of 16-bit parameters."""

    @property
    def total(self) -> int:
        """Bytes of all together."""
        return self.gradients + self.optimizer_states + self.master_weights


def training_memory(
    parameters: Iterable[torch.nn.Parameter],
    *,
    optimizer: str,
    momentum: float = 0.0,
    master_weights: bool,
    float32_gradients: bool,
) -> TrainingMemory:
    """Return the bytes that training these parameters needs.

    Args:
        parameters: Of the model; frozen ones need nothing.

    Example:
        ```python
        import torch
        from optimum_neuron.trainer.memory import training_memory

        weights = [torch.nn.Parameter(torch.zeros(1000))]
        need = training_memory(weights, optimizer="AdamW", master_weights=True, float32_gradients=True)
        assert need.total == 3 * 4000
        ```
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    elements = sum(parameter.numel() for parameter in trainable)
    narrow_elements = sum(parameter.numel() for parameter in narrow(trainable))
    size_bytes = sum(parameter.nbytes for parameter in trainable)
    wide_bytes = 4 * narrow_elements + size_bytes - 2 * narrow_elements
    num_states = STATES_PER_PARAMETER.get(optimizer, 0) + (optimizer == "SGD" and momentum != 0)
    assert size_bytes >= 2 * narrow_elements and elements >= narrow_elements
    return TrainingMemory(
        gradients=wide_bytes if float32_gradients else size_bytes,
        optimizer_states=num_states * (wide_bytes if master_weights else size_bytes),
        master_weights=4 * narrow_elements if master_weights else 0,
    )


def require_fit(model: torch.nn.Module, arguments: TrainingArguments, *, optimizer: type, momentum: float) -> None:
    """Reject a training whose gradients and optimizer do not fit the core that the model is on."""
    device = arguments.device
    # A core has only its part of a DTensor.
    parameters = [getattr(parameter, "_local_tensor", parameter) for parameter in model.parameters()]

    def need(**changes: object) -> TrainingMemory:
        settings: dict[str, Any] = {
            "optimizer": optimizer.__name__,
            "momentum": momentum,
            "master_weights": arguments.optimizer_use_master_weights,
            "float32_gradients": arguments.optimizer_use_fp32_grad_acc,
        }
        return training_memory(parameters, **{**settings, **changes})

    needed, (available, _) = need(), torch.neuron.mem_get_info(device)
    if needed.total <= available:
        return
    changes = {
        "optimizer_use_fp32_grad_acc=False": need(float32_gradients=False),
        "optimizer_use_master_weights=False": need(master_weights=False),
        "optim='sgd'": need(optimizer="SGD", momentum=0.0),
    }
    fitting = [name for name, memory in changes.items() if memory.total <= available and memory != needed]
    num_parameters = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    missing_bytes, needed_bytes = needed.total - available, dataclasses.asdict(needed)
    raise DeviceMemoryError(
        f"Training {num_parameters:,} parameters with {optimizer.__name__} needs {missing_bytes / 2**30:.3f}GB more "
        f"than is available on {device}, before any activation. Memory needed, simulated:\n"
        f"{memory_table(needed_bytes, available)}\n{torch.neuron.memory_summary(device)}",
        hint=f"Pass {' or '.join([*fitting, 'peft_config=LoraConfig(...), which trains few parameters'])}.",
        num_parameters=num_parameters,
        optimizer=optimizer.__name__,
        choices=[*fitting, "peft_config"],
        needed_bytes=needed_bytes,
        available_bytes=available,
        simulated=True,
    )
