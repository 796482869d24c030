"""Convolutions whose channels ranks divide: `OutputChannelParallelConv2d` and `InputChannelParallelConv2d`.

A kernel is drawn whole, as in `layers.py`, so ranks with one seed have the kernel that one process has.

    first = OutputChannelParallelConv2d(320, 640, 3, padding=1, gather_output=False)
    second = InputChannelParallelConv2d(640, 640, 3, padding=1, input_is_parallel=True)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError
from . import mappings
from .arithmetic import divide, get_padding_length
from .layers import summed_gradient
from .parameters import Initializer, parallel_parameter

Sizes = int | tuple[int, int]
CHANNELS = -3
"""The dimension of channels, with and without a batch."""


def pair_of(sizes: Sizes) -> tuple[int, int]:
    """Return sizes of both dimensions of a picture."""
    return (sizes, sizes) if isinstance(sizes, int) else (sizes[0], sizes[1])


class BaseParallelConv(nn.Module):
    """A convolution whose kernel ranks divide in one dimension."""

    partition_dim: int
    master_weight: torch.Tensor
    master_bias: torch.Tensor
    bias: nn.Parameter | None

    def _make(self, options: dict[str, Any]) -> None:
        """Keep the arguments of the constructor, find the ranks, and draw kernel and bias."""
        options = options | {name: pair_of(options[name]) for name in ("dilation", "kernel_size")}
        for name, only in (("dilation", (1, 1)), ("groups", 1), ("padding_mode", "zeros")):
            if (given := options[name]) != only:
                message = f"{name} is {given}, and channels that ranks divide need {only}."
                raise ConfigError(message, hint="Use torch.nn.Conv2d for this layer.", option=name, value=given)
        self.kernel_size, self.stride, self.padding = (options[name] for name in ("kernel_size", "stride", "padding"))
        self.tensor_parallel_group = mappings.group_or_tensor(None)
        self.tp_size = mappings.size_of(self.tensor_parallel_group)
        channels = [options["out_channels"], options["in_channels"]]
        self.pad_size = (
            get_padding_length(channels[self.partition_dim], self.tp_size) if options["partition_pad"] else 0
        )
        channels[self.partition_dim] += self.pad_size
        self.out_channels, self.in_channels = channels
        self.channels_per_partition = divide(channels[self.partition_dim], self.tp_size)
        self.dtype, self.keep_master_params = options["dtype"], options["keep_master_weight"]
        init: Initializer = options["init_method"] or (lambda whole: nn.init.kaiming_uniform_(whole, a=math.sqrt(5)))
        self._draw("weight", (*channels, *self.kernel_size), self.partition_dim, init, options["device"])
        if not options["bias"]:
            self.register_parameter("bias", None)
            return
        bound = 1 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        dim = 0 if self.partition_dim == 0 else None
        self._draw(
            "bias", (self.out_channels,), dim, lambda whole: nn.init.uniform_(whole, -bound, bound), options["device"]
        )

    def _draw(self, name: str, shape: tuple[int, ...], dim: int | None, init: Initializer, device: Any) -> None:
        def drawn(whole: torch.Tensor) -> None:
            init(whole)
            if self.keep_master_params:
                setattr(self, f"master_{name}", whole.to(self.dtype))

        group, dtype = self.tensor_parallel_group, self.dtype
        setattr(self, name, parallel_parameter(shape, dim, drawn, group=group, dtype=dtype, device=device))

    def _convolved(self, value: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return F.conv2d(value, self.weight, bias, self.stride, self.padding)

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Pad a tensor of a whole checkpoint as this layer is padded.

        Args:
            model_state_dict: the tensors, by name.
            prefix: name of this layer's weight or bias.
        """
        whole = model_state_dict[prefix]
        is_divided = whole.ndim == 4 or self.partition_dim == 0
        if self.pad_size and is_divided:
            dim = self.partition_dim if whole.ndim == 4 else 0
            sides = [0, 0] * (whole.ndim - 1 - dim) + [0, self.pad_size]
            model_state_dict[prefix] = F.pad(whole, sides)

    def extra_repr(self) -> str:
        """Return sizes and ranks, for `print`."""
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{sizes}, padding={self.padding}, bias={self.bias is not None}, ranks={self.tp_size}"


class OutputChannelParallelConv2d(BaseParallelConv):
    """A convolution whose ranks each compute a part of the output channels.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels, of all ranks.
        kernel_size: as of `torch.nn.Conv2d`.
        stride: as of `torch.nn.Conv2d`.
        padding: as of `torch.nn.Conv2d`.
        dilation: 1.
        groups: 1.
        bias: add a bias.
        padding_mode: "zeros".
        gather_output: return the channels of all ranks; otherwise this rank's.
        dtype: dtype of the kernel.
        device: device of the kernel.
        init_method: draws the whole kernel, in place.
        keep_master_weight: keep the whole kernel and bias in `master_weight` and `master_bias`.
        partition_pad: add channels until ranks can divide them.
    """

    partition_dim = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        gather_output: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        init_method: Initializer | None = None,
        keep_master_weight: bool = False,
        partition_pad: bool = False,
    ) -> None:
        options = dict(locals())
        super().__init__()
        self.gather_output = gather_output
        self._make(options)

    def forward(self, in_tensor: torch.Tensor) -> torch.Tensor:
        """Return the output channels.

        Args:
            in_tensor: input channels, which ranks have alike.
        """
        group = self.tensor_parallel_group
        if self.tp_size > 1:
            in_tensor = summed_gradient(in_tensor, group, in_tensor.dtype)
        output = self._convolved(in_tensor, self.bias)
        if not self.gather_output:
            return output
        whole = mappings.gather_from_tensor_model_parallel_region_with_dim(output, CHANNELS, group)
        return whole.narrow(CHANNELS, 0, self.out_channels - self.pad_size) if self.pad_size else whole


class InputChannelParallelConv2d(BaseParallelConv):
    """A convolution whose ranks each have a part of the input channels.

    Args:
        in_channels: number of input channels, of all ranks.
        out_channels: number of output channels.
        kernel_size: as of `torch.nn.Conv2d`.
        stride: as of `torch.nn.Conv2d`.
        padding: as of `torch.nn.Conv2d`.
        dilation: 1.
        groups: 1.
        bias: add a bias, after the sum over ranks.
        padding_mode: "zeros".
        input_is_parallel: the input is this rank's channels.
        dtype: dtype of the kernel.
        device: device of the kernel.
        init_method: draws the whole kernel, in place.
        keep_master_weight: keep the whole kernel and bias in `master_weight` and `master_bias`.
        partition_pad: add channels until ranks can divide them.
    """

    partition_dim = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        input_is_parallel: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        init_method: Initializer | None = None,
        keep_master_weight: bool = False,
        partition_pad: bool = False,
    ) -> None:
        options = dict(locals())
        super().__init__()
        self.input_is_parallel = input_is_parallel
        self._make(options)

    def forward(self, in_tensor: torch.Tensor) -> torch.Tensor:
        """Return the output channels, which ranks have alike.

        Args:
            in_tensor: this rank's input channels, or channels that ranks have alike.
        """
        group = self.tensor_parallel_group
        if not self.input_is_parallel:
            if self.pad_size:
                in_tensor = F.pad(in_tensor, (0, 0, 0, 0, 0, self.pad_size))
            in_tensor = mappings.scatter_to_sequence_parallel_region(in_tensor, CHANNELS, group)
        output = mappings.reduce_from_tensor_model_parallel_region(self._convolved(in_tensor, None), group)
        return output if self.bias is None else output + self.bias[:, None, None]
