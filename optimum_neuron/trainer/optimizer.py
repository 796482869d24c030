"""Float32 master weights and float32 gradients for parameters of 16 bits, under any optimizer of torch.

A step of AdamW is often smaller than the distance between two bfloat16 numbers, so it is lost when weights are kept in
16 bits only. `keep_master_weights` gives the optimizer a float32 copy to step on, and rounds it into the model's
weights, by the hooks that torch offers. `accumulate_in_float32` lets torch keep gradients in float32. Parameters in
float32 are left alone. It does not depend on trainers.

    optimizer = torch.optim.AdamW(model.parameters())
    keep_master_weights(optimizer)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..distributed import NARROW, narrow
from ..errors import ConfigError

STATE_KEY = "master_weights"
"""Entry of `optimizer.state_dict()` with the float32 weights, by torch's number of the parameter."""


def accumulate_in_float32(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Let gradients of 16-bit parameters be float32 (`Tensor.grad_dtype`), so that small ones add up."""
    for parameter in narrow(parameters):
        parameter.grad_dtype = torch.float32


def require_one_process(model: torch.nn.Module, world_size: int) -> None:
    """Reject float32 gradients that DistributedDataParallel would reduce in 16 bits."""
    if world_size > 1 and narrow(model.parameters()):
        message = "optimizer_use_fp32_grad_acc does not support DistributedDataParallel with 16-bit parameters."
        hint = "Pass the loaded model, not its name or model_init, or optimizer_use_fp32_grad_acc=False."
        raise ConfigError(message, hint=hint, option="optimizer_use_fp32_grad_acc", world_size=world_size)


def round_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Give float32 gradients to an optimizer in the dtype of their parameters, if there are no master weights."""

    def round_all(*_: object) -> None:
        for parameter in _narrow_of(optimizer):
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                parameter.grad_dtype = parameter.dtype
                parameter.grad = gradient.to(parameter.dtype)

    def widen_again(*_: object) -> None:
        for parameter in _narrow_of(optimizer):
            parameter.grad = None
            parameter.grad_dtype = torch.float32

    optimizer.register_step_pre_hook(round_all)
    optimizer.register_step_post_hook(widen_again)


def keep_master_weights(optimizer: torch.optim.Optimizer) -> MasterWeights | None:
    """Let an optimizer step in float32 where parameters have 16 bits; return None if there are none.

    Example:
        ```python
        import torch
        from optimum_neuron.trainer.optimizer import keep_master_weights

        weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        optimizer = torch.optim.SGD([weight], lr=1e-4)
        keep_master_weights(optimizer)
        for _ in range(100):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        assert weight[0] < 1  # 1 - 1e-4 is 1 in bfloat16
        ```
    """
    return MasterWeights(optimizer) if _narrow_of(optimizer) else None


def _narrow_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return narrow(parameter for group in optimizer.param_groups for parameter in group["params"])


class MasterWeights:
    """Float32 copies of 16-bit parameters; the optimizer steps on them.

    The model's parameters are unchanged: DistributedDataParallel and compiled code hold on to them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._masters: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
        self._numbers: dict[torch.nn.Parameter, int] = {}
        number = 0
        for group in optimizer.param_groups:
            for place, parameter in enumerate(group["params"]):
                if narrow([parameter]):
                    group["params"][place] = self._masters[parameter] = torch.nn.Parameter(parameter.detach().float())
                    self._numbers[parameter] = number
                    _move_state(optimizer, parameter, self._masters[parameter])
                number += 1
        self._versions = {parameter: parameter._version for parameter in self._masters}
        optimizer.register_step_pre_hook(lambda *_: self._take_gradients())
        optimizer.register_step_post_hook(lambda *_: self._round())
        optimizer.register_state_dict_post_hook(self._add_to)
        optimizer.register_load_state_dict_pre_hook(self._take_from)

    @property
    def size_bytes(self) -> int:
        """Bytes of the float32 weights."""
        return sum(master.nbytes for master in self._masters.values())

    def named(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the float32 weights by the names of their parameters."""
        return {
            name: self._masters[parameter] for name, parameter in model.named_parameters() if parameter in self._masters
        }

    def clear_gradients(self) -> None:
        """Clear the gradients of the 16-bit parameters, which the optimizer's `zero_grad` does not know."""
        for parameter in self._masters:
            parameter.grad = None

    @torch.no_grad()
    def _take_gradients(self) -> None:
        for parameter, master in self._masters.items():
            if parameter._version != self._versions[parameter]:
                # A loaded checkpoint changed the weights.
                master.copy_(parameter)
            if parameter.grad is not None:
                master.grad = parameter.grad.float()

    @torch.no_grad()
    def _round(self) -> None:
        for parameter, master in self._masters.items():
            parameter.copy_(master)
            master.grad = None
            self._versions[parameter] = parameter._version

    def _add_to(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        state[STATE_KEY] = {self._numbers[parameter]: master.data for parameter, master in self._masters.items()}

    @torch.no_grad()
    def _take_from(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
        loaded = state.get(STATE_KEY, {})
        for parameter, master in self._masters.items():
            master.copy_(loaded.get(self._numbers[parameter], parameter))
            self._versions[parameter] = parameter._version
        return {name: value for name, value in state.items() if name != STATE_KEY}


def _move_state(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, master: torch.nn.Parameter) -> None:
    """Move the averages of an optimizer that has stepped to the master weights, in float32."""
    if parameter in optimizer.state:
        state = optimizer.state.pop(parameter)
        optimizer.state[master] = {
            name: value.float() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value
            for name, value in state.items()
        }
