"""Queries, keys, and values of grouped-query attention, with fewer heads of keys and values than ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError
from . import mappings
from .arithmetic import divide
from .attributes import set_fused
from .layers import summed_gradient
from .parallel_state import KV_SHARED, TENSOR, initialize_kv_group
from .parameters import Initializer, default_init, parallel_parameter


class GQAQKVColumnParallelLinear(nn.Module):
    """Three column-parallel layers with one input.

    Ranks at the same place of `kv_size_multiplier` equal parts have the same heads of keys and values, and their
    gradients are summed.

    Args:
        input_size: number of inputs.
        output_sizes: outputs of the queries, and of the keys, of all ranks.
        bias: add biases.
        gather_output: return outputs of all ranks; keys and values come `kv_size_multiplier` times.
        dtype: dtype of the weights.
        device: device of the weights.
        init_method: draws a whole weight, in place.
        sequence_parallel_enabled: the input is this rank's part of the sequence, which is its first dimension.
        kv_size_multiplier: how many ranks have the same heads of keys and values.
        fuse_qkv: keep the three weights in one, `weight_qkv`.
        reduce_dtype: dtype in which gradients of inputs are summed.
    """

    def __init__(
        self,
        input_size: int,
        output_sizes: Sequence[int],
        bias: bool = True,
        gather_output: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        init_method: Initializer | None = None,
        sequence_parallel_enabled: bool = False,
        kv_size_multiplier: int = 1,
        fuse_qkv: bool = True,
        reduce_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if gather_output and sequence_parallel_enabled:
            message = "A column-parallel layer cannot gather outputs of parts of a sequence."
            raise ConfigError(message, hint="Pass gather_output=False.")
        self.tensor_parallel_group = mappings.group_or_tensor(None)
        self.tp_size = mappings.size_of(self.tensor_parallel_group)
        if TENSOR.is_made() and not (KV_SHARED.is_made() and KV_SHARED.size() == kv_size_multiplier):
            initialize_kv_group(kv_size_multiplier)
        self.gather_output, self.use_bias, self.fuse_qkv = gather_output, bias, fuse_qkv
        self.sequence_parallel_enabled, self.kv_size_multiplier = sequence_parallel_enabled, kv_size_multiplier
        self.reduce_dtype, self.input_size, self.output_sizes = reduce_dtype, input_size, list(output_sizes)
        self._copies = {"q": 1, "k": kv_size_multiplier, "v": kv_size_multiplier}
        self._whole = {"q": output_sizes[0], "k": output_sizes[1], "v": output_sizes[1]}
        self.sizes = {name: divide(self._whole[name] * self._copies[name], self.tp_size) for name in self._whole}
        bound = 1 / math.sqrt(input_size)
        self._kinds: dict[str, tuple[tuple[int, ...], Initializer]] = {
            "weight": ((input_size,), init_method or default_init),
            "bias": ((), lambda whole: nn.init.uniform_(whole, -bound, bound)),
        }
        for kind in self._kinds:
            self._keep(kind, self._drawn(kind, dtype, torch.device(device) if device else torch.get_default_device()))

    def _drawn(self, kind: str, dtype: torch.dtype, device: torch.device) -> dict[str, nn.Parameter]:
        """Weights or biases of queries, keys, and values."""
        shape, init = self._kinds[kind]
        names = self._whole if self.use_bias or kind == "weight" else ()
        return {
            name: self._part((self._whole[name], *shape), self._copies[name], init, dtype, device) for name in names
        }

    @torch.no_grad()
    def initialize_weight_biases(self) -> None:
        """Draw weights and biases again, as when the layer was made."""
        for kind in self._kinds:
            own = getattr(self, f"{kind}_qkv" if self.fuse_qkv else f"{kind}_q")
            if own is None:
                continue
            parts = self._drawn(kind, own.dtype, torch.device("cpu"))
            if self.fuse_qkv:
                own.copy_(torch.cat([part.detach() for part in parts.values()]))
            else:
                for name, part in parts.items():
                    getattr(self, f"{kind}_{name}").copy_(part)

    def _part(
        self,
        shape: tuple[int, ...],
        copies: int,
        init: Initializer,
        dtype: torch.dtype | None,
        device: torch.device | None,
    ) -> nn.Parameter:
        """This rank's part of a weight, of which all ranks together have several copies."""

        def repeated(whole: torch.Tensor) -> None:
            once = torch.empty(shape)
            init(once)
            whole.copy_(once.repeat(copies, *[1] * (len(shape) - 1)))

        of_all = (shape[0] * copies, *shape[1:])
        return parallel_parameter(of_all, 0, repeated, group=self.tensor_parallel_group, dtype=dtype, device=device)

    def _keep(self, kind: str, parts: dict[str, nn.Parameter]) -> None:
        """Keep weights or biases, as three parameters or as one."""
        if not self.fuse_qkv:
            for name in ("q", "k", "v"):
                self.register_parameter(f"{kind}_{name}", parts.get(name))
            return
        fused = None
        if parts:
            fused = nn.Parameter(torch.cat([part.detach() for part in parts.values()]))
            vars(fused).update(vars(parts["q"]))
            set_fused(fused, self._whole["q"], self._whole["k"] * self._copies["k"])
        self.register_parameter(f"{kind}_qkv", fused)

    def _held(self, kind: str) -> dict[str, torch.Tensor]:
        """Weights or biases of queries, keys, and values."""
        if not self.use_bias and kind == "bias":
            return {}
        if self.fuse_qkv:
            parts = getattr(self, f"{kind}_qkv").split(list(self.sizes.values()))
            return dict(zip(self.sizes, parts, strict=True))
        return {name: getattr(self, f"{kind}_{name}") for name in self.sizes}

    def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys, and values.

        Args:
            input: inputs that ranks have alike, or parts of a sequence.
        """
        group = self.tensor_parallel_group
        if self.sequence_parallel_enabled:
            input = mappings.gather_from_sequence_parallel_region(input, 0, process_group=group)
        elif self.tp_size > 1:
            input = summed_gradient(input, group, self.reduce_dtype or input.dtype)
        weights, biases = self._held("weight"), self._held("bias")
        outputs = []
        for name, weight in weights.items():
            is_query = name == "q"
            shared = weight if is_query else self._shared(weight)
            output = F.linear(input, shared)
            if self.gather_output:
                output = mappings.gather_from_tensor_model_parallel_region(output, group)
            if self.use_bias:
                outputs.append(output + self._whole_bias(biases[name], is_query))
            else:
                outputs.append(output)
        queries, keys, values = outputs
        return queries, keys, values

    def _shared(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter whose gradient is summed over the ranks that have a copy of it."""
        if self.kv_size_multiplier == 1 or not KV_SHARED.is_made():
            return parameter
        group = KV_SHARED.group()
        return mappings.copy_to_tensor_model_parallel_region(parameter, group)

    def _whole_bias(self, bias: torch.Tensor, is_query: bool) -> torch.Tensor:
        own = bias if is_query else self._shared(bias)
        if not self.gather_output:
            return own
        return mappings.gather_from_tensor_model_parallel_region(own, self.tensor_parallel_group)
