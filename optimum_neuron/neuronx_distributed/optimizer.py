"""An optimizer that averages and clips gradients over ranks, as `initialize_parallel_optimizer` returns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..xla import zero
from . import grads
from .attributes import is_of_expert
from .parallel_state import EXPERT


class NxDOptimizer(torch.optim.Optimizer):
    """An optimizer of a rank; settings and states are those of the optimizer inside.

    Args:
        optimizer: steps on this rank's parameters.
        nxd_config: the configuration.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, nxd_config: Mapping[str, Any]) -> None:
        # Not Optimizer.__init__: groups and states are those of the optimizer inside.
        self.optimizer, self.nxd_config = optimizer, nxd_config
        self._grad_norm: torch.Tensor | None = None

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """Norm of the gradients of the last step over all ranks, before clipping."""
        return self._grad_norm

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("param_groups", "state", "defaults"):
            setattr(self.optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"NxDOptimizer({self.optimizer!r})"

    def __getstate__(self) -> Any:
        return self.optimizer.__getstate__()

    def __setstate__(self, state: object) -> None:
        self.optimizer.__setstate__(state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters.

        Args:
            param_group: as of any optimizer.
        """
        self.optimizer.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients.

        Args:
            set_to_none: remove them.
        """
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the states."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned.

        Args:
            state_dict: the states.
        """
        self.optimizer.load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Average gradients over ranks, clip them, and step.

        Args:
            closure: computes the loss and its gradients.

        Returns:
            What the closure returns.
        """
        loss = zero.evaluated(closure)
        options = self.nxd_config["optimizer_config"]
        if self.nxd_config["sequence_parallel"]:
            grads.allreduce_sequence_parallel_gradients(self.optimizer)
        if options["zero_one_enabled"]:
            self.optimizer.step()
            self._grad_norm = self.optimizer.grad_norm
            return loss
        pairs = grads.gradients_of(self.optimizer)
        grads.bucket_allreduce_gradients([gradient for _, gradient in pairs])
        if EXPERT.size() > 1:  # experts have the gradients of all its ranks' tokens already
            rest = [gradient for one, gradient in pairs if not is_of_expert(one)]
            grads.bucket_allreduce_gradients(rest, reduce_over_ep_group=True)
        if options["grad_clipping"]:
            self._grad_norm = grads.clip_grad_norm([one for one, _ in pairs], options["max_grad_norm"])
        self.optimizer.step()
        return loss
