"""ZeRO-1: `torch_xla.distributed.zero_redundancy_optimizer.ZeroRedundancyOptimizer`.

Each rank keeps the states of an optimizer for its part of the rows of every parameter. A step has five parts: gradients
are averaged and divided, their norm is summed over ranks, they are clipped, the optimizer steps on this rank's rows,
and the ranks gather the new rows.

    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..base.foreign import parameter_facts
from ..errors import ConfigError
from . import collectives, graphs
from .ordinals import global_ordinal, world_size

Scheme = list[dict[str, Any]]
"""Collectives one after the other, each with `scale_factor`, `sharding_group`, and `group_size`."""

_logger = logging.getLogger(__name__)


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Divides the states of an optimizer among ranks.

    Args:
        params: as of any optimizer.
        optimizer_class: the optimizer of each rank's rows.
        optimizer_dtype: dtype of these rows; None: float32.
        grad_clipping: clip gradients by their norm over all ranks.
        max_norm: that norm; None: 1.0.
        pin_layout: as of `collectives.all_reduce`.
        sharding_groups: groups of ranks that divide states; None: all ranks.
        grad_norm_groups: further groups over which the norm is summed, of model parallelism.
        lazy_init: divide parameters when `init_zero` is called.
        bucket_cap_mb_all_gather: MiB of parameters that one collective gathers; 0: one collective for each parameter.
        bucket_cap_mb_reduce_scatter: MiB of gradients that one collective reduces; 0: one for each gradient.
        use_grad_acc_hook: sum gradients of several backward passes in `optimizer_dtype`, in `main_grad`.
        save_master_weights: have rows of `optimizer_dtype` in `state_dict` too.
        higher_cc_precision: reduce gradients in `optimizer_dtype`.
        **defaults: arguments of the optimizer.

    Raises:
        ConfigError: this rank is in no group, or parameters are on several devices.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: collectives.Groups = None,
        grad_norm_groups: collectives.Groups = None,
        lazy_init: bool = False,
        bucket_cap_mb_all_gather: int = 0,
        bucket_cap_mb_reduce_scatter: int = 0,
        use_grad_acc_hook: bool = False,
        save_master_weights: bool = False,
        higher_cc_precision: bool = False,
        **defaults: object,
    ) -> None:
        if not save_master_weights:
            _logger.warning("Not saving master weights may have accuracy issues when resuming training!")
        self.inited = False
        super().__init__(params, defaults)
        self.optimizer_class, self.defaults = optimizer_class, defaults
        self.optimizer_dtype = optimizer_dtype or torch.float32
        self.grad_clipping, self.max_norm = grad_clipping, 1.0 if max_norm is None else max_norm
        self.pin_layout = pin_layout
        self.global_rank, self.global_world_size = global_ordinal(), world_size()
        everyone = [list(range(self.global_world_size))]
        self._sharding_groups = everyone if sharding_groups is None else [list(group) for group in sharding_groups]
        self._grad_norm_groups = grad_norm_groups
        self.bucket_cap_mb_all_gather = bucket_cap_mb_all_gather
        self.bucket_cap_mb_reduce_scatter = bucket_cap_mb_reduce_scatter
        self.use_grad_acc_hook = use_grad_acc_hook
        self.save_master_weights, self.higher_cc_precision = save_master_weights, higher_cc_precision
        self._grad_norm: torch.Tensor | None = None
        self._hooks: list[Any] = []
        if not lazy_init:
            self.init_zero()

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """Norm of the gradients of the last step, before clipping."""
        return self._grad_norm

    @property
    def sharding_groups(self) -> list[list[int]]:
        """Groups of ranks that divide states; can be set before `init_zero`."""
        return self._sharding_groups

    @sharding_groups.setter
    def sharding_groups(self, groups: list[list[int]]) -> None:
        self._require(not self.inited, "Its groups cannot change after init_zero().", "Pass lazy_init=True.")
        self._sharding_groups = groups

    def init_zero(self) -> None:
        """Divide parameters, and make the optimizer of this rank's rows."""
        mine = [group for group in self._sharding_groups if self.global_rank in group]
        hint = "Let each rank be in one of `sharding_groups`."
        self._require(len(mine) == 1, f"Rank {self.global_rank} is in {len(mine)} of its groups.", hint)
        self.local_world_size, self.local_rank = len(mine[0]), list(mine[0]).index(self.global_rank)
        self.base_optimizer = self.optimizer_class(self._shard_parameters(), **self.defaults)
        copy_settings(self.param_groups, self.base_optimizer.param_groups)
        copy_settings(self.base_optimizer.param_groups, self.param_groups)
        self.inited = True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, before `init_zero`.

        Args:
            param_group: as of any optimizer.
        """
        self._require(not self.inited, "Parameters are divided already.", "Pass all of them when you make it.")
        super().add_param_group(param_group)

    def _require(self, condition: bool, problem: str, hint: str) -> None:
        if not condition:
            raise ConfigError(f"ZeroRedundancyOptimizer: {problem}", hint=hint)

    def _shard_parameters(self) -> list[dict[str, Any]]:
        """Groups of the base optimizer: this rank's rows, in its dtype."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        devices = {parameter.device for group in self.param_groups for parameter in group["params"]}
        self._require(len(devices) == 1, f"Parameters are on {len(devices)} devices.", "Move all of them to one.")
        (self.device,) = devices
        return [
            {**group, "params": [self._sharded(parameter) for parameter in group["params"]]}
            for group in self.param_groups
        ]

    def _sharded(self, parameter: torch.Tensor) -> nn.Parameter:
        rows = self._shard_tensor(parameter.detach()).to(self.optimizer_dtype, copy=True)
        shard = nn.Parameter(rows, requires_grad=parameter.requires_grad)
        if self.use_grad_acc_hook and parameter.requires_grad:
            self._hooks.append(parameter.register_post_accumulate_grad_hook(self._adds_to_main_grad))
        return shard

    @torch.no_grad()
    def _adds_to_main_grad(self, parameter: torch.Tensor) -> None:
        if parameter_facts(parameter).main_grad is None:
            parameter.main_grad = torch.zeros_like(parameter, dtype=self.optimizer_dtype)
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    def _gradient(self, parameter: torch.Tensor) -> torch.Tensor | None:
        return parameter_facts(parameter).main_grad if self.use_grad_acc_hook else parameter.grad

    def _pad_to_world_size(self, tensor: torch.Tensor, world_size: int) -> torch.Tensor:
        """A tensor with rows of zeros until ranks can divide it."""
        tensor = tensor.reshape(-1) if tensor.ndim == 0 else tensor
        missing = -tensor.shape[0] % world_size
        return nn.functional.pad(tensor, [0, 0] * (tensor.ndim - 1) + [0, missing]) if missing else tensor

    def _shard_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._pad_to_world_size(tensor, self.local_world_size).chunk(self.local_world_size)[self.local_rank]

    def _pairs(self) -> Iterator[tuple[torch.Tensor, nn.Parameter]]:
        """Parameters, each with its rows of this rank."""
        for group, sharded in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            yield from zip(group["params"], sharded["params"], strict=True)

    def _trained(self) -> list[tuple[torch.Tensor, nn.Parameter]]:
        return [(parameter, shard) for parameter, shard in self._pairs() if self._gradient(parameter) is not None]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: object) -> Any:
        """Step on this rank's rows, and gather the rows of all ranks.

        Args:
            closure: computes the loss and its gradients.
            **kwargs: arguments of the optimizer's `step`; `sharding_scheme` replaces the collectives.

        Returns:
            What the closure returns.
        """
        self._require(self.inited, "It has no rows yet.", "Call init_zero() before the first step.")
        loss = evaluated(closure)
        self._reduce_gradients(**kwargs)
        if self.grad_clipping:
            self._clip_grad_norm(max_norm=self.max_norm)
        self._update_parameters(**kwargs)
        return loss

    def _get_sharding_scheme(self, kwargs: dict[str, Any]) -> Scheme:
        own = {"scale_factor": 1.0, "sharding_group": self.sharding_groups, "group_size": self.local_world_size}
        scheme: Scheme = kwargs.get("sharding_scheme", [own])
        return scheme

    def _reduce_gradients(self, **kwargs: object) -> None:
        copy_settings(self.param_groups, self.base_optimizer.param_groups)
        trained = self._trained()
        gradients = [self._padded_gradient(parameter) for parameter, _ in trained]
        cap_mb = self.bucket_cap_mb_reduce_scatter
        for part in self._get_sharding_scheme(kwargs):
            scale = part["scale_factor"] / part["group_size"]
            rest = (scale, 0, part["group_size"], part["sharding_group"])
            if cap_mb:
                gradients = collectives.reduce_scatter_bucketized("sum", gradients, *rest, bucket_cap_mb=cap_mb)
            else:
                gradients = [collectives.reduce_scatter("sum", one, *rest) for one in gradients]
        for (_, shard), gradient in zip(trained, gradients, strict=True):
            shard.grad = gradient.to(self.optimizer_dtype)

    def _padded_gradient(self, parameter: torch.Tensor) -> torch.Tensor:
        gradient = self._gradient(parameter)
        assert gradient is not None
        padded = self._pad_to_world_size(gradient, self.local_world_size)
        return padded.to(self.optimizer_dtype) if self.higher_cc_precision else padded

    def _calc_grad_norm(self, norm_type: float = 2.0) -> torch.Tensor:
        self._require(norm_type == 2.0, f"The norm {norm_type} is not supported.", "Use the norm 2.")
        total = torch.zeros((), dtype=self.optimizer_dtype, device=self.device)
        for _, shard in self._pairs():
            if shard.grad is not None:
                total += shard.grad.square().sum()
        for groups in (self._sharding_groups, self._grad_norm_groups):
            if groups is not None:
                collectives.all_reduce("sum", [total], groups=groups, pin_layout=self.pin_layout)
        return total.sqrt()

    @torch.no_grad()
    def _clip_grad_norm(self, max_norm: float, norm_type: float = 2.0) -> None:
        self._grad_norm = self._calc_grad_norm(norm_type)
        factor = (max_norm / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for _, shard in self._pairs():
            if shard.grad is not None:
                shard.grad.mul_(factor)

    def _update_parameters(self, **kwargs: object) -> None:
        scheme = self._get_sharding_scheme(kwargs)
        self.base_optimizer.step(**{name: value for name, value in kwargs.items() if name != "sharding_scheme"})
        self.base_optimizer.zero_grad(set_to_none=True)
        self.allgather_weights_and_update_full_parameter(scheme)
        copy_settings(self.base_optimizer.param_groups, self.param_groups)

    @torch.no_grad()
    def allgather_weights_and_update_full_parameter(self, sharding_scheme: Scheme | None = None) -> None:
        """Give parameters with gradients the rows of all ranks.

        Args:
            sharding_scheme: the collectives; None: one over the groups.
        """
        scheme = self._get_sharding_scheme({}) if sharding_scheme is None else sharding_scheme
        self._gather(self._trained(), scheme)

    def _gather(self, pairs: list[tuple[torch.Tensor, nn.Parameter]], scheme: Scheme) -> None:
        rows = [shard.detach().to(parameter.dtype) for parameter, shard in pairs]
        cap_mb = self.bucket_cap_mb_all_gather
        for part in reversed(scheme):
            groups = part["sharding_group"]
            if cap_mb:
                rows = collectives.all_gather_bucketized(rows, 0, groups, bucket_cap_mb=cap_mb)
            else:
                rows = [collectives.all_gather(one, 0, groups, pin_layout=self.pin_layout) for one in rows]
        for (parameter, _), whole in zip(pairs, rows, strict=True):
            parameter.detach().copy_(whole[: parameter.shape[0] if parameter.ndim else 1].view(parameter.shape))

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear gradients.

        Args:
            set_to_none: remove them.
        """
        super().zero_grad(set_to_none=set_to_none)
        for parameter, _ in self._pairs() if self.use_grad_acc_hook else ():
            if parameter_facts(parameter).main_grad is not None:
                parameter.main_grad.zero_()

    def get_shape_info(self) -> dict[int, torch.Size]:
        """Return the shapes of whole parameters by their numbers."""
        return {number: parameter.shape for number, (parameter, _) in enumerate(self._pairs())}

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's states in `base_state`, shapes of whole parameters, and its rows if they are saved."""
        state = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        state["shape_info"] = self.get_shape_info()
        if self.save_master_weights:
            state["sharded_master_weights"] = {number: rows.detach() for number, (_, rows) in enumerate(self._pairs())}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned on the same rank of as many ranks.

        Args:
            state_dict: the states.

        Raises:
            ConfigError: it has the states of other parameters, or of another number of ranks.
        """
        own = {"base_state", "shape_info", "sharded_master_weights"}
        super().load_state_dict({name: value for name, value in state_dict.items() if name not in own})
        self.init_zero()
        self._require_fit(state_dict)
        groups = self.state_dict()["param_groups"]
        self.base_optimizer.load_state_dict({"state": state_dict["base_state"], "param_groups": groups})
        masters = state_dict.get("sharded_master_weights")
        if masters is None:
            return
        with torch.no_grad():
            for number, (_, shard) in enumerate(self._pairs()):
                shard.copy_(masters[number])
        graphs.sync()
        self._gather(list(self._pairs()), self._get_sharding_scheme({}))
        graphs.sync()

    def _require_fit(self, state_dict: dict[str, Any]) -> None:
        saved = {number: tuple(shape) for number, shape in state_dict.get("shape_info", {}).items()}
        shapes = {number: tuple(shape) for number, shape in self.get_shape_info().items()}
        self._require(saved in ({}, shapes), "The states are those of other parameters.", "Pass the same model.")
        for number, (_, shard) in enumerate(self._pairs()):
            tensors = [value for value in state_dict["base_state"].get(number, {}).values() if torch.is_tensor(value)]
            # An optimizer may have smaller states too, of factors.
            alike = [tensor for tensor in tensors if tensor.ndim == shard.ndim]
            other = [list(tensor.shape) for tensor in alike if tensor.shape != shard.shape]
            problem = f"Parameter {number} has the rows {list(shard.shape)} on this rank, and states of {other[:1]}."
            self._require(not other, problem, "Load with as many ranks as it was saved with.")


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """Return the loss of a closure, which computes gradients too; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def copy_settings(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
    """Copy learning rates and other settings of groups."""
    for group, other in zip(source, target, strict=True):
        other.update((name, value) for name, value in group.items() if name != "params")
