"""Parts of a layer besides attention: projections, norms in float32, feed-forward blocks, rotary positions; and which
layers are equal.

Tokens of a call are all of them, unless sequence parallelism replaces the methods of `TokenModule`.

A capture need not run every layer: what a layer of this package computes depends on its configuration, attributes, and
submodules only. Where these cannot be compared, for example with hooks of adapters, `compiler/record.py` compares the
operators of the layers.

    layer_kinds(decoder.layers, decoder.config.layers)        # (0, 0, 0, 0): four equal layers

Shape legend: B batch, T tokens, I inputs, O outputs, D hidden or the width that is normalized, F feed-forward
width, N heads, H head width, R rotated width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig, Norm, Rotary


class TransposedLinear(nn.Module):
    """A linear layer whose weight has its inputs in dimension 0, as checkpoints of GPT-2 store it."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None

    def forward(self, x_I: torch.Tensor) -> torch.Tensor:
        return F.linear(x_I, self.weight.t(), self.bias)


def make_linear(config: DecoderConfig, num_inputs: int, num_outputs: int, *, bias: bool) -> nn.Module:
    """Return a projection whose weight has the checkpoint's layout."""
    return (TransposedLinear if config.has_transposed_weights else nn.Linear)(num_inputs, num_outputs, bias=bias)


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Bound numbers smoothly (Gemma 2 report, 2024, section 2); None leaves them."""
    return x if cap is None else (x / cap).tanh() * cap


class RMSNorm(nn.Module):
    """Root-mean-square norm in float32; returns the weight's dtype (Zhang and Sennrich 2019, eq. 4)."""

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps, self.adds_one = norm.eps, norm.adds_one

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        x = x_BTD.float()
        x = x * torch.rsqrt(self.mean_square(x) + self.eps)
        weight = self.weight.float() + 1.0 if self.adds_one else self.weight.float()
        return (x * weight).to(self.weight.dtype)

    def mean_square(self, x: torch.Tensor) -> torch.Tensor:
        """Of the last dimension; tensor parallelism replaces it where several cores have parts of that."""
        return x.pow(2).mean(-1, keepdim=True)


class LayerNorm(nn.LayerNorm):
    """Norm by mean and variance in float32; returns the weight's dtype (Ba et al. 2016, eq. 4)."""

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__(size, eps=norm.eps, bias=norm.has_bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        x = F.layer_norm(x_BTD.float(), self.normalized_shape, self.weight.float(), bias, self.eps)
        return x.to(self.weight.dtype)


def make_norm(size: int, norm: Norm) -> nn.Module:
    """Return a norm of a width."""
    return RMSNorm(size, norm) if norm.kind == "rms" else LayerNorm(size, norm)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
}
"""Functions by the names that transformers' configurations have for them."""


class GatedMLP(nn.Module):
    """Feed-forward with a gate; gate and up projection are one weight (Shazeer 2020, eq. 6)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        width, bias = config.intermediate_size, config.has_mlp_bias
        self.gate_up = make_linear(config, config.hidden_size, 2 * width, bias=bias)
        self.down = make_linear(config, width, config.hidden_size, bias=bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x_BTD).float().chunk(2, -1)
        return self.down((self.activation(gate) * up).to(x_BTD.dtype))


class PlainMLP(nn.Module):
    """Feed-forward of two projections with an activation between them (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        width, bias = config.intermediate_size, config.has_mlp_bias
        self.up = make_linear(config, config.hidden_size, width, bias=bias)
        self.down = make_linear(config, width, config.hidden_size, bias=bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x_BTD).float()).to(x_BTD.dtype))


def make_feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Return the feed-forward of a layer, the same for all."""
    return GatedMLP(config) if config.is_gated else PlainMLP(config)


class TokenModule(nn.Module):
    """A module that adds to the residual stream, of which a core may have a part of the tokens."""

    def own_tokens(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return the tokens of this core, of all."""
        return x_BTD

    def all_tokens(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return all tokens, of those of this core."""
        return x_BTD


_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: submodules, tensors, hooks."""


def layer_kinds(layers: Iterable[nn.Module], configs: Sequence[Hashable]) -> tuple[int, ...] | None:
    """Return for each layer the first one that is equal to it; None if the layers cannot be compared.

    Args:
        configs: what a decoder passes to each of them depends on this.
    """
    outer: list[Any] = []
    inner: list[Any] = []
    for layer, config in zip(layers, configs, strict=True):
        modules = list(layer.named_modules())
        own = [{name: value for name, value in vars(each).items() if name not in _OF_TORCH} for _, each in modules]
        if any(_is_opaque(each) for _, each in modules) or any(_has_tensor(values) for values in own):
            return None
        tensors = (*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False))
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)
        outer.append((config, tuple((path, type(each)) for path, each in modules), shapes))
        inner.append(own)
    firsts = tuple(map(outer.index, outer))
    # Equal objects may compare as different: then the operators of the layers decide.
    return firsts if all(inner[first] == inner[place] for place, first in enumerate(firsts)) else None


def _is_opaque(module: nn.Module) -> bool:
    """Return whether more than attributes decides what a module does: hooks, or values of computed buffers."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._non_persistent_buffers_set)


def _has_tensor(values: dict[str, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Angles:
    """Cosine and sine of each token's rotation."""

    cos: torch.Tensor
    """[B, 1, T, R]."""
    sin: torch.Tensor
    """[B, 1, T, R], negated for the first channel of each pair."""
    is_interleaved: bool
    """See `Rotary`."""


def rotary_angles(positions: torch.Tensor, inv_freq: torch.Tensor, rotary: Rotary) -> Angles:
    """Return what rotates heads at these positions: [B, T], or one for each frequency [B, T, R / 2]."""
    positions = positions[..., None] if positions.ndim == 2 else positions
    angles = positions[:, None].float() * inv_freq
    half_cos, half_sin = angles.cos() * rotary.scale, angles.sin() * rotary.scale
    if rotary.is_interleaved:
        cos = torch.stack((half_cos, half_cos), -1).flatten(-2)
        sin = torch.stack((-half_sin, half_sin), -1).flatten(-2)
    else:
        cos, sin = torch.cat((half_cos, half_cos), -1), torch.cat((-half_sin, half_sin), -1)
    return Angles(cos=cos, sin=sin, is_interleaved=rotary.is_interleaved)


def rotate(x_BNTH: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Rotate pairs of channels by their position's angle (Su et al. 2021, sec. 3.4.2), in float32.

    Channels beyond the rotated width stay. The two of a pair are swapped by a flip, which fuses into one pass; joining
    them from two pieces would take four.
    """
    width = angles.cos.shape[-1]
    if width < x_BNTH.shape[-1]:
        return torch.cat((rotate(x_BNTH[..., :width], angles), x_BNTH[..., width:]), -1)
    x = x_BNTH.float()
    if angles.is_interleaved:
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        swapped = x.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return (x * angles.cos + swapped * angles.sin).to(x_BNTH.dtype)
