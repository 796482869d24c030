"""ZeRO-1 under tensor parallelism: ranks of data parallelism divide the states of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..base.foreign import parameter_facts
from ..errors import ConfigError
from ..xla import serialization, zero
from . import grads, mappings
from .agreement import ending_together
from .attributes import copy_tensor_model_parallel_attributes, is_of_expert
from .checkpointing import PathLike, local_path, require_file, write_item
from .parallel_state import EXPERT, EXPERT_DATA, TENSOR, ZERO1


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

    def save_sharded_state_dict(self, output_dir: PathLike, num_workers_per_step: int = 8) -> None:
        """Write the states of this rank; all ranks call it. `save_checkpoint` writes whole checkpoints.

        Args:
            output_dir: the folder.
            num_workers_per_step: how many ranks of a machine write at once; all do.
        """
        with ending_together("Free space, or choose another folder, and save again."):
            write_item({**self.state_dict(), "dp_rank": ZERO1.rank(), "tp_rank": TENSOR.rank()}, _file(output_dir))

    def load_sharded_state_dict(self, output_dir: PathLike, num_workers_per_step: int = 8) -> None:
        """Load what `save_sharded_state_dict` wrote on this rank; all ranks call it.

        Args:
            output_dir: the folder.
            num_workers_per_step: how many ranks of a machine read at once; all do.
        """
        file = _file(output_dir)
        require_file(file)
        with ending_together("Load states of the same model and as many ranks."):
            states = serialization.read_file(file)
            self.load_state_dict({name: value for name, value in states.items() if not name.endswith("p_rank")})

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
            shard.shared = bool(parameter_facts(parameter).shared)
            shards.append(shard)
        group = mappings.group_or_tensor(ZERO1.group())
        return grads.get_grad_norm(shards, norm_type, extra_groups=(group,)).squeeze(0)


def _file(folder: PathLike) -> Path:
    return local_path(folder) / f"optim.dp_rank_{ZERO1.rank():02d}.tp_rank_{TENSOR.rank():02d}"


class NeuronEPZero1Optimizer(NeuronZero1Optimizer):
    """ZeRO-1 with expert parallelism: the states of experts are divided among the ranks that have the same experts.

    Its states are those of both kinds, with the numbers of experts behind the others, as NxD's.

    Args:
        params: as of any optimizer.
        optimizer_class: the optimizer of each rank's rows.
        **options: as of `NeuronZero1Optimizer`.
    """

    def __init__(
        self, params: Iterable[Any], optimizer_class: Callable[..., torch.optim.Optimizer], **options: Any
    ) -> None:
        options.pop("sharding_groups", None)
        self._options = options
        super().__init__(params, optimizer_class, lazy_init=True, **options)
        self.init_zero()

    def init_zero(self) -> None:
        """Divide the parameters of both kinds; a rank of a pipeline can have one of them only."""
        edp = EXPERT_DATA.replica_groups()
        self._parts: list[NeuronZero1Optimizer | None] = []
        for is_expert in (False, True):
            held = [
                {**group, "params": [one for one in group["params"] if is_of_expert(one) is is_expert]}
                for group in self.param_groups
            ]
            options = {**self._options, "sharding_groups": edp} if is_expert else self._options
            has_any = any(group["params"] for group in held)
            self._parts.append(NeuronZero1Optimizer(held, self.optimizer_class, **options) if has_any else None)
        # The gradients of experts are sums over the tokens of all ranks that divide experts.
        own = {"scale_factor": 1.0 / EXPERT.size(), "sharding_group": edp, "group_size": EXPERT_DATA.size()}
        self._schemes: list[dict[str, Any]] = [{}, {"sharding_scheme": [own]}]
        self.inited = True

    def _each(self) -> Iterator[tuple[NeuronZero1Optimizer, dict[str, Any]]]:
        """The optimizers of both kinds, each with the collectives of its steps."""
        for part, scheme in zip(self._parts, self._schemes, strict=True):
            if part is not None:
                yield part, scheme

    def _pairs(self) -> Iterator[tuple[torch.Tensor, nn.Parameter]]:
        for part, _ in self._each():
            yield from part._pairs()

    def _reduce_gradients(self, **kwargs: object) -> None:
        for part, scheme in self._each():
            zero.copy_settings(self.param_groups, part.param_groups)
            part._reduce_gradients(**scheme, **kwargs)

    def _update_parameters(self, **kwargs: object) -> None:
        for part, scheme in self._each():
            part._update_parameters(**scheme, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both kinds; `ep_..._offset` are the first numbers of experts."""
        others, experts = ({} if part is None else part.state_dict() for part in self._parts)
        joined: dict[str, Any] = {
            "param_groups": [*others.get("param_groups", []), *experts.get("param_groups", [])],
            "ep_param_group_offset": len(others.get("param_groups", [])),
        }
        for name, offset in _OFFSETS.items():
            first = max(others.get(name, {}), default=0) + 1
            joined[offset] = first
            moved = {first + number: value for number, value in experts.get(name, {}).items()}
            joined[name] = {**others.get(name, {}), **moved}
        return joined

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned on the same rank of as many ranks.

        Args:
            state_dict: the states.
        """
        cut = state_dict["ep_param_group_offset"]
        groups = (state_dict["param_groups"][:cut], state_dict["param_groups"][cut:])
        for kind, part in enumerate(self._parts):
            own: dict[str, Any] = {"param_groups": groups[kind]}
            for name, offset in _OFFSETS.items():
                first = state_dict.get(offset, 0)
                of_kind = {number: one for number, one in state_dict.get(name, {}).items() if (number >= first) == kind}
                own[name] = {number - first * kind: value for number, value in of_kind.items()}
            if not own["sharded_master_weights"]:
                del own["sharded_master_weights"]
            if part is not None:
                part.load_state_dict(own)
                zero.copy_settings(part.param_groups, self.param_groups)


_OFFSETS = {
    "state": "ep_param_id_offset",
    "base_state": "ep_base_state_offset",
    "shape_info": "ep_shape_info_offset",
    "sharded_master_weights": "ep_master_weights_offset",
}
"""States by number, and the key that says where those of experts begin."""
