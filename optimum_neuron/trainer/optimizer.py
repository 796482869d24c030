"""Float32 master weights and float32 gradients for parameters of 16 bits, under any optimizer of torch.

A step of AdamW is often smaller than the distance between two bfloat16 numbers, so it is lost when weights are kept in
16 bits only. `keep_master_weights` gives the optimizer a float32 copy for the length of its step, by the hooks that
torch offers; the model sees the rounded weights. `accumulate_in_float32` lets torch keep gradients in float32.
Float32 parameters are left alone. It knows nothing of trainers.

    optimizer = torch.optim.AdamW(model.parameters())
    keep_master_weights(optimizer)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..errors import ConfigError, refusal

STATE_KEY = "master_weights"
"""Entry of `optimizer.state_dict()` with the float32 weights, by torch's number of the parameter."""

NARROW = (torch.bfloat16, torch.float16)
"""Dtypes whose steps are lost."""


def narrow(parameters: Iterable[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """The trainable parameters of 16 bits."""
    return [parameter for parameter in parameters if parameter.requires_grad and parameter.dtype in NARROW]


def accumulate_in_float32(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Let gradients of 16-bit parameters be float32 (`Tensor.grad_dtype`), so that small ones add up."""
    for parameter in narrow(parameters):
        parameter.grad_dtype = torch.float32


def round_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Hand float32 gradients of 16-bit parameters to an optimizer in the parameters' dtype, for want of masters."""

    def round_all(*_: Any) -> None:
        for parameter in narrow(parameter for group in optimizer.param_groups for parameter in group["params"]):
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                parameter.grad_dtype = parameter.dtype
                parameter.grad = gradient.to(parameter.dtype)

    def widen_again(*_: Any) -> None:
        for parameter in narrow(parameter for group in optimizer.param_groups for parameter in group["params"]):
            parameter.grad = None
            parameter.grad_dtype = torch.float32

    optimizer.register_step_pre_hook(round_all)
    optimizer.register_step_post_hook(widen_again)


def keep_master_weights(optimizer: torch.optim.Optimizer) -> MasterWeights | None:
    """Let an optimizer step in float32 where parameters have 16 bits; None where none has.

    Raises:
        ConfigError: parameters are sharded, and their owner keeps the float32 weights.

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
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not narrow(parameters):
        return None
    sharded = [parameter for parameter in narrow(parameters) if type(parameter.data) is not torch.Tensor]
    if sharded:
        raise ConfigError(
            refusal(
                asked="optimizer_use_master_weights with sharded 16-bit parameters",
                found=f"{len(sharded)} parameters of {type(sharded[0].data).__name__}",
                why="sharded parameters keep their own float32 weights",
                do="load the model in float32 and pass bf16=True, or optimizer_use_master_weights=False",
            )
        )
    return MasterWeights(optimizer, parameters)


class MasterWeights:
    """Float32 copies of an optimizer's 16-bit parameters, in place of them while it steps or loads."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
        self._numbers = {parameter: number for number, parameter in enumerate(parameters)}
        self._masters = {parameter: parameter.detach().float() for parameter in narrow(parameters)}
        self._narrow: dict[torch.nn.Parameter, tuple[torch.Tensor, torch.Tensor | None, Any]] = {}
        self._versions = {parameter: parameter._version for parameter in self._masters}
        optimizer.register_step_pre_hook(lambda *_: self._put_in_place())
        optimizer.register_step_post_hook(lambda *_: self._round())
        optimizer.register_state_dict_post_hook(self._add_to)
        optimizer.register_load_state_dict_pre_hook(self._take_from)
        # Loaded states are cast to the dtype of their parameter, which has to be float32 then.
        optimizer.register_load_state_dict_post_hook(lambda _: self._take_out())

    @property
    def size_bytes(self) -> int:
        """Bytes of the copies."""
        return sum(master.nbytes for master in self._masters.values())

    @torch.no_grad()
    def _put_in_place(self) -> None:
        for parameter, master in self._masters.items():
            if parameter._version != self._versions[parameter]:
                # Somebody else wrote the weights: a checkpoint was loaded.
                master.copy_(parameter)
            self._narrow[parameter] = parameter.data, parameter.grad, parameter.grad_dtype
            gradient, parameter.grad = parameter.grad, None
            parameter.data = master
            parameter.grad_dtype = torch.float32
            parameter.grad = None if gradient is None else gradient.float()

    @torch.no_grad()
    def _round(self) -> None:
        for parameter, (weights, _, _) in self._narrow.items():
            weights.copy_(self._masters[parameter])
        self._take_out()

    def _take_out(self) -> None:
        """Give parameters the storage back that the model, and compiled code, have always had."""
        for parameter, (weights, gradient, grad_dtype) in self._narrow.items():
            parameter.grad = None
            parameter.data = weights
            parameter.grad_dtype = grad_dtype
            parameter.grad = gradient
            self._versions[parameter] = parameter._version
        self._narrow.clear()

    def _add_to(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        state[STATE_KEY] = {self._numbers[parameter]: master for parameter, master in self._masters.items()}

    @torch.no_grad()
    def _take_from(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
        loaded = state.get(STATE_KEY, {})
        self._put_in_place()
        for parameter, master in self._masters.items():
            if self._numbers[parameter] in loaded:
                master.copy_(loaded[self._numbers[parameter]])
        return {name: value for name, value in state.items() if name != STATE_KEY}
