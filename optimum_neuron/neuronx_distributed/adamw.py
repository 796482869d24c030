"""AdamW as transformers had it, with states of at least float32.

Weights decay after the update, and `eps` is added before the correction of the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import ConfigError
from ..xla import zero


class AdamW_FP32OptimParams(torch.optim.Optimizer):
    """AdamW for parameters of any float dtype.

    Args:
        params: as of any optimizer.
        lr: learning rate.
        betas: decay of the mean and of the mean square of gradients.
        eps: added to the root of the mean square.
        weight_decay: share of a weight that a step removes, times the learning rate.
        correct_bias: scale both means by how many steps are in them.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        for name, value, is_fine in (
            ("lr", lr, lr >= 0.0),
            ("betas", betas, all(0.0 <= beta < 1.0 for beta in betas)),
            ("eps", eps, eps >= 0.0),
        ):
            if not is_fine:
                raise ConfigError(f"{name} is {value}.", hint="Pass a number from 0; betas are below 1.", option=name)
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "correct_bias": correct_bias}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: computes the loss and its gradients.

        Returns:
            What the closure returns.
        """
        loss = zero.evaluated(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        gradient = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        state["step"] += 1
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        beta1, beta2 = group["betas"]
        mean.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        size = group["lr"]
        if group["correct_bias"]:
            size *= math.sqrt(1.0 - beta2 ** state["step"]) / (1.0 - beta1 ** state["step"])
        change = mean / square.sqrt().add_(group["eps"])
        updated = parameter.to(gradient.dtype).add(change, alpha=-size)
        if group["weight_decay"] > 0.0:
            updated.mul_(1.0 - group["lr"] * group["weight_decay"])
        parameter.copy_(updated)
