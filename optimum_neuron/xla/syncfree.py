"""Optimizers that skip a step without reading a value on the host: `torch_xla.amp.syncfree`.

optimizer = AdamW(model.parameters())
optimizer.step(found_inf=found_inf)  # a scalar on the device: 1 leaves parameters and states as they are
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .zero import evaluated


class _SyncFree(torch.optim.Optimizer):
    """Mixin of torch's optimizers."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, found_inf: torch.Tensor | None = None) -> Any:
        """Update the parameters, or leave all as it is.

        Args:
            closure: computes the loss again.
            found_inf: scalar tensor, 0 for a step; None: a step.

        Raises:
            ValueError: `found_inf` is no scalar.
        """
        if found_inf is None:
            return super().step(closure)
        if found_inf.dim():
            raise ValueError(f"found_inf must be a scalar, but has shape {list(found_inf.shape)}.")
        loss = evaluated(closure)
        self._keep_steps_on_device()
        trained = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        before = {one: one.clone() for one in [*trained, *self._states(trained)]}
        super().step()
        for tensor in [*trained, *self._states(trained)]:
            old = before.get(tensor)
            kept = torch.zeros_like(tensor) if old is None else old
            tensor.copy_(torch.where(found_inf.to(tensor.device) != 0, kept, tensor))
        return loss

    def _states(self, trained: list[torch.Tensor]) -> list[torch.Tensor]:
        states = (value for one in trained for value in self.state.get(one, {}).values())
        return [value for value in states if isinstance(value, torch.Tensor)]

    def _keep_steps_on_device(self) -> None:
        """Count steps on the device, where the optimizer counts them: a skipped step does not count."""
        for group in self.param_groups:
            if "capturable" not in group:
                continue
            group["capturable"] = True
            for one in group["params"]:
                if "step" in self.state.get(one, {}):
                    self.state[one]["step"] = self.state[one]["step"].to(one.device)


class SGD(_SyncFree, torch.optim.SGD):
    """`torch.optim.SGD` with `found_inf`."""


class Adam(_SyncFree, torch.optim.Adam):
    """`torch.optim.Adam` with `found_inf`."""


class AdamW(_SyncFree, torch.optim.AdamW):
    """`torch.optim.AdamW` with `found_inf`."""
