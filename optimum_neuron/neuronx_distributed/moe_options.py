"""Options of mixtures of experts, as `ExpertMLPsV2` takes them.

Scripts change options of a layer that is made already, so these are not frozen. Options of NxD's kernels are taken, and
change nothing: experts are computed with matmuls.

    options = RoutedExpertsMLPOpsConfig(8, 64, 128, top_k=2, hidden_act="silu", glu_mlp=True)
    layer = ExpertMLPsV2(options)
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import torch

from ..errors import ConfigError, NotSupportedError, invalid_choice
from .parameters import Initializer

DEFAULT_BLOCK_SIZE = 512
"""Tokens of a block of NxD's kernel."""


class GLUType(enum.Enum):
    """How a gate scales the other projection: act(gate) * up, or gate * act(gate) * up."""

    GLU = "glu"
    SWIGLU = "swiglu"

    @classmethod
    def validate(cls, glu_type: GLUType | str | None) -> GLUType:
        """Return the type that a string names.

        Args:
            glu_type: the type, or its name; None: GLU.
        """
        if isinstance(glu_type, cls):
            return glu_type
        names = [one.value for one in cls]
        if glu_type is not None and glu_type not in names:
            raise invalid_choice("glu_type", glu_type, names)
        return cls(glu_type or "glu")


class BlockShardStrategy(enum.Enum):
    """Which core of two computes a block, in NxD's kernel."""

    HI_LO = 0
    PING_PONG = 1


@dataclasses.dataclass
class RoutedExpertsMLPOpsConfig:
    """Experts that tokens choose from."""

    num_experts: int
    """Number of experts."""
    hidden_size: int
    """Size of a token."""
    intermediate_size: int
    """Width of an expert."""
    top_k: int
    """Experts of a token."""
    hidden_act: str
    """Name of the activation."""
    glu_mlp: bool
    """Multiply an activated projection by another."""
    bias: bool = False
    """Add biases."""
    glu_type: GLUType | str | None = GLUType.GLU
    """How the gate scales."""
    hidden_act_scaling_factor: float = 1.0
    """Factor of what is activated."""
    hidden_act_bias: float = 0.0
    """Summand of the other projection."""
    hidden_size_actual: int | None = None
    """Size of a token without padding; not used."""
    intermediate_size_actual: int | None = None
    """Width without padding; not used."""
    is_hidden_dim_shuffled: bool | None = None
    """Not used."""
    is_intermediate_dim_shuffled: bool | None = None
    """Not used."""
    use_index_calc_kernel: bool = True
    """Not used."""
    gate_clamp_upper_limit: float | None = None
    """The largest value of a gate."""
    gate_clamp_lower_limit: float | None = None
    """The smallest value of a gate."""
    up_clamp_upper_limit: float | None = None
    """The largest value of the other projection."""
    up_clamp_lower_limit: float | None = None
    """The smallest value of the other projection."""
    normalize_top_k_affinities: bool = False
    """Let the affinities of a token's experts have the sum 1."""
    early_expert_affinity_modulation: bool = False
    """Scale inputs by affinities, and not outputs; for one expert of a token."""
    input_layer_init_method: Initializer | None = None
    """Draws the first weights of an expert; None: as `torch.nn.Linear`."""
    output_layer_init_method: Initializer | None = None
    """Draws the last weights of an expert."""
    capacity_factor: float | None = None
    """Tokens of an expert, over those of equal shares; later ones are dropped. None, or 0 and less: no limit."""
    enable_spmd_rank: bool = False
    """Not used: programs ask for the rank."""
    is_prefill: bool | None = None
    """Not used."""
    expert_distribution: list[list[int]] | None = None
    """Copies of experts; not supported."""

    def __post_init__(self) -> None:
        if not 0 < self.top_k <= self.num_experts:
            message = f"A token cannot choose {self.top_k} of {self.num_experts} experts."
            hint = "Pass a top_k from 1 to num_experts."
            raise ConfigError(message, hint=hint, top_k=self.top_k, num_experts=self.num_experts)
        if self.normalize_top_k_affinities and self.top_k == 1:
            hint = "Pass top_k of 2 or more, or normalize_top_k_affinities=False."
            raise ConfigError("Affinities of one expert are all 1 when they are normalized.", hint=hint, top_k=1)
        if self.early_expert_affinity_modulation and self.top_k > 1:
            message = f"Inputs cannot be scaled by the affinities of {self.top_k} experts."
            hint = "Pass top_k=1, or early_expert_affinity_modulation=False."
            raise ConfigError(message, hint=hint, top_k=self.top_k)
        refuse_copies(self.expert_distribution)
        self.glu_type = GLUType.validate(self.glu_type)
        factor = self.capacity_factor
        if factor is not None and (factor <= 0 or factor >= self.num_experts / self.top_k):
            self.capacity_factor = None


def refuse_copies(expert_distribution: object) -> None:
    """Refuse copies of experts.

    Args:
        expert_distribution: the experts of each rank, or None.
    """
    if expert_distribution:
        hint = "Leave expert_distribution out."
        raise NotSupportedError("Experts have no copies.", hint=hint, option="expert_distribution")


@dataclasses.dataclass
class BlockwiseMatmulConfig:
    """Options of NxD's kernel, which multiplies the tokens of one expert at a time. They change no result."""

    block_size: int = DEFAULT_BLOCK_SIZE
    use_block_parallel: bool = False
    block_sharding_strategy: BlockShardStrategy | str = BlockShardStrategy.HI_LO
    skip_dma_token: bool = False
    skip_dma_weight: bool = False
    logical_nc_config: int = 1
    blockwise_nki_autograd_cls: object = None
    use_torch_block_wise: bool = False
    parallelize_token_to_block_mapping: bool = True
    optimized_block_to_token_mapping: bool = True
    always_augment_inputs_for_blockwise_matmul: bool = False
    use_shard_on_intermediate_dynamic_while: bool = False
    use_shard_on_block_dynamic_while: bool = False
    num_static_blocks: int | None = None
    pad_num_blocks_to_even: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.block_sharding_strategy, str):
            names = [one.name for one in BlockShardStrategy]
            if self.block_sharding_strategy not in names:
                raise invalid_choice("block_sharding_strategy", self.block_sharding_strategy, names)
            self.block_sharding_strategy = BlockShardStrategy[self.block_sharding_strategy]

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> BlockwiseMatmulConfig:
        """Return the options among others.

        Args:
            **kwargs: options of a model.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in kwargs.items() if name in names})

    @classmethod
    def default(cls) -> BlockwiseMatmulConfig:
        """Return the defaults."""
        return cls()


@dataclasses.dataclass
class RouterConfig:
    """Options of a router."""

    act_fn: str = "softmax"
    """What makes affinities of scores."""
    dtype: torch.dtype | str = torch.float32
    """Dtype of the router, or its name."""

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str):
            names = ["bfloat16", "float16", "float32"]
            if self.dtype not in names:
                raise invalid_choice("dtype", self.dtype, names)
            self.dtype = getattr(torch, self.dtype)

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> RouterConfig:
        """Return the options among others.

        Args:
            **kwargs: options of a model, of which `router_act_fn` and `router_dtype` are read.
        """
        return cls(kwargs.get("router_act_fn", "softmax"), kwargs.get("router_dtype", torch.float32))
