"""ZeRO-1 under tensor parallelism: ranks of data parallelism divide the states of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import ConfigError
from ..xla import zero
from . import grads, mappings
from .attributes import copy_tensor_model_parallel_attributes
from .parallel_state import TENSOR, ZERO1


class NeuronZero1Optimizer(zero.ZeroRedundancyOptimizer):
    """`ZeroRedundancyOptimizer` whose groups are those of data and context parallelism.

    The norm of gradients counts parameters that ranks of tensor parallelism have alike once.

    Args:
        params: as of any optimizer.
        optimizer_class: the optimizer of each rank's rows.
        sharding_groups: groups of ranks that divide states; None: those of data and context parallelism.
        **options: as of `ZeroRedundancyOptimizer`.

    Raises:
        ConfigError: model parallelism is not initialized, or parameters are not on the device "xla".
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., torch.optim.Optimizer],
        sharding_groups: Any = None,
        **options: Any,
    ) -> None:
        if not TENSOR.is_made():
            message = "NeuronZero1Optimizer needs the groups of model parallelism."
            raise ConfigError(message, hint="Call initialize_model_parallel() first.")
        options.setdefault("grad_norm_groups", TENSOR.replica_groups())
        groups = ZERO1.replica_groups() if sharding_groups is None else sharding_groups
        super().__init__(params, optimizer_class, sharding_groups=groups, **options)

    def _shard_parameters(self) -> list[dict[str, Any]]:
        kinds = {one.device.type for group in self.param_groups for one in group["params"]}
        if kinds != {"xla"}:
            message = f"ZeRO-1 divides parameters of the device xla, and these are on {', '.join(sorted(kinds))}."
            raise ConfigError(
                message, hint="Move the model to 'xla', or pass zero_one_enabled=False.", devices=sorted(kinds)
            )
        return super()._shard_parameters()

    def _calc_grad_norm(self, norm_type: float = 2.0) -> torch.Tensor:
        shards = []
        for parameter, shard in self._pairs():
            copy_tensor_model_parallel_attributes(shard, parameter)
            shard.shared = getattr(parameter, "shared", False)
            shards.append(shard)
        group = mappings.group_or_tensor(ZERO1.group())
        return grads.get_grad_norm(shards, norm_type, extra_groups=(group,)).squeeze(0)
