"""Experts that tokens choose from, without routing: `ExpertMLPsV2`, and `ExpertMLPs`, which takes options by name.

A rank computes its experts for all tokens, and results that a token did not choose count zero. So shapes are static,
and numbers are those of a model that sends tokens to experts. Ranks of expert parallelism have other tokens: they
gather them, compute their own experts, and each rank gets the sums of its tokens.

    layer = ExpertMLPs(8, 2, 64, 128, "silu", glu_mlp=True, capacity_factor=None)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError, NotSupportedError, invalid_choice
from . import mappings
from .agreement import require_agreement
from .expert_layers import ACT2FN, Experts
from .moe_options import BlockwiseMatmulConfig, RoutedExpertsMLPOpsConfig
from .simulated import is_simulated

_CPU = torch.device("cpu")


class ExpertMLPsV2(nn.Module):
    """Feed-forward layers that tokens choose from.

    Args:
        routed_experts_mlp_config: sizes and options of the experts.
        blockwise_matmul_config: options of NxD's kernel, without effect.
        return_bias: False.
        dtype: dtype of weights.
        sequence_parallel_enabled: not used; `MoE` gathers sequences.
        device: device of weights.
        tensor_model_parallel_group: ranks that divide the width of experts; None: those of tensor parallelism.
        expert_model_parallel_group: ranks that divide experts; None: those of expert parallelism.
        is_prefill: not used.
    """

    def __init__(
        self,
        routed_experts_mlp_config: RoutedExpertsMLPOpsConfig,
        blockwise_matmul_config: BlockwiseMatmulConfig | None = None,
        return_bias: bool = False,
        dtype: torch.dtype = torch.float32,
        sequence_parallel_enabled: bool = False,
        device: torch.device = _CPU,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        expert_model_parallel_group: dist.ProcessGroup | None = None,
        is_prefill: bool = True,
    ) -> None:
        super().__init__()
        options = routed_experts_mlp_config
        if options.hidden_act not in ACT2FN:
            raise invalid_choice("hidden_act", options.hidden_act, list(ACT2FN))
        if return_bias:
            raise NotSupportedError("Experts return no biases.", hint="Leave return_bias out.", option="return_bias")
        self.routed_experts_mlp_config = options
        self.blockwise_matmul_config = blockwise_matmul_config or BlockwiseMatmulConfig()
        self.tensor_parallel_group = mappings.group_or_tensor(tensor_model_parallel_group)
        self.expert_model_parallel_group = mappings.group_or_expert(expert_model_parallel_group)
        groups = {"group": self.tensor_parallel_group, "expert_group": self.expert_model_parallel_group}
        num_ranks = mappings.size_of(self.expert_model_parallel_group)
        if options.num_experts % num_ranks:
            message = f"{num_ranks} ranks of expert parallelism cannot divide {options.num_experts} experts."
            hint = "Choose an expert_parallel_size that divides the number of experts."
            raise ConfigError(message, hint=hint, ranks=num_ranks, num_experts=options.num_experts)
        self.mlp_op = Experts(options, dtype=dtype, device=device, **groups)
        self._has_compared = num_ranks == 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        expert_affinities: torch.Tensor,
        expert_index: torch.Tensor,
        seq_len: int | None = None,
        padding_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a part of a sum over ranks of tensor parallelism, for each token.

        Args:
            hidden_states: tokens [T, H].
            expert_affinities: affinity of each token with each expert [T, E].
            expert_index: the chosen experts [T, top_k].
            seq_len: not used.
            padding_mask: 0 for each token that is padding [T], whose result is zero.
        """
        options, group = self.routed_experts_mlp_config, self.expert_model_parallel_group
        chosen = self._chosen(expert_index).to(expert_affinities.dtype)
        if padding_mask is not None:
            chosen = chosen * padding_mask.reshape(-1, 1).to(chosen.dtype)
        shares = expert_affinities * chosen
        if options.normalize_top_k_affinities:
            shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
        tokens = hidden_states
        if options.early_expert_affinity_modulation:
            tokens, shares = tokens * shares.sum(1, keepdim=True), chosen
        if mappings.size_of(group) > 1:
            self._require_equal_lengths(len(tokens), group)
            tokens = mappings.gather_from_sequence_parallel_region(tokens, 0, True, group)
            shares = mappings.gather_from_sequence_parallel_region(shares, 0, True, group)
            shares = shares.chunk(mappings.size_of(group), 1)[mappings.rank_in(group)]
        results = (self.mlp_op(tokens) * shares.T.unsqueeze(-1)).sum(0)
        if mappings.size_of(group) > 1:
            results = mappings.reduce_scatter_to_sequence_parallel_region(results, 0, group)
        return results

    def _chosen(self, expert_index: torch.Tensor) -> torch.Tensor:
        """Which experts compute a token [T, E]: those that it chose, unless they have enough tokens before it."""
        options, num_tokens = self.routed_experts_mlp_config, len(expert_index)
        chosen = F.one_hot(expert_index, options.num_experts).sum(1)
        if options.capacity_factor is None:
            return chosen
        share = num_tokens * options.top_k * options.capacity_factor / options.num_experts
        return chosen * (chosen.cumsum(0) <= math.ceil(share))

    def _require_equal_lengths(self, num_tokens: int, group: mappings.Group) -> None:
        """Require that ranks have equally many tokens, at the first call: later ones are not compared."""
        if not self._has_compared and not is_simulated(group):
            require_agreement("numbers of tokens", {"tokens": num_tokens}, group)
            self._has_compared = True


class ExpertMLPs(ExpertMLPsV2):
    """Feed-forward layers that tokens choose from.

    Args:
        num_experts: number of experts.
        top_k: experts of a token.
        hidden_size: size of a token.
        intermediate_size: width of an expert.
        hidden_act: name of the activation.
        glu_mlp: multiply an activated projection by another.
        capacity_factor: tokens of an expert, over those of equal shares; later ones are dropped. None: no limit.
        init_method: draws the first weights of one expert; None: as `torch.nn.Linear`.
        dtype: dtype of weights.
        device: device of weights.
        tensor_model_parallel_group: ranks that divide the width of experts; None: those of tensor parallelism.
        expert_model_parallel_group: ranks that divide experts; None: those of expert parallelism.
        **options: of `ExpertMLPsV2`, `RoutedExpertsMLPOpsConfig`, and `BlockwiseMatmulConfig`.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        intermediate_size: int,
        hidden_act: str,
        glu_mlp: bool,
        capacity_factor: float | None,
        init_method: Any = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device = _CPU,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        expert_model_parallel_group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        own = {"return_bias", "sequence_parallel_enabled", "is_prefill"}
        of_experts = {field.name for field in dataclasses.fields(RoutedExpertsMLPOpsConfig)} - own
        of_kernel = {field.name for field in dataclasses.fields(BlockwiseMatmulConfig)}
        for name in options:
            if name not in own | of_experts | of_kernel:
                raise invalid_choice("option of ExpertMLPs", name, own | of_experts | of_kernel)
        super().__init__(
            RoutedExpertsMLPOpsConfig(
                num_experts,
                hidden_size,
                intermediate_size,
                top_k,
                hidden_act,
                glu_mlp,
                capacity_factor=capacity_factor,
                input_layer_init_method=init_method,
                **{name: options[name] for name in options if name in of_experts},
            ),
            BlockwiseMatmulConfig.from_kwargs(**{**options, "block_size": options.get("block_size") or 512}),
            dtype=dtype,
            device=device,
            tensor_model_parallel_group=tensor_model_parallel_group,
            expert_model_parallel_group=expert_model_parallel_group,
            **{name: options[name] for name in options if name in own},
        )
