"""Numbers that ranks divide, and tensors cut into equal parts.

>>> from optimum_neuron.neuronx_distributed.arithmetic import get_padding_length
>>> get_padding_length(10, 4)
2
"""

from __future__ import annotations

import torch

from ..errors import ConfigError


def ensure_divisibility(numerator: int, denominator: int) -> None:
    """Require that a number can be divided without a rest.

    Args:
        numerator: the number.
        denominator: the divisor.
    """
    if numerator % denominator:
        message = f"{numerator} is not divisible by {denominator}."
        hint = "Choose sizes that the degree of parallelism divides."
        raise ConfigError(message, hint=hint, numerator=numerator, denominator=denominator)


def divide(numerator: int, denominator: int) -> int:
    """Return the quotient of a number that can be divided without a rest.

    Args:
        numerator: the number.
        denominator: the divisor.
    """
    ensure_divisibility(numerator, denominator)
    return numerator // denominator


def get_padding_length(numerator: int, denominator: int) -> int:
    """Return what to add to a number so that it can be divided.

    Args:
        numerator: the number.
        denominator: the divisor.
    """
    return -numerator % denominator


def split_tensor_along_dim(
    tensor: torch.Tensor, dim: int, num_partitions: int, contiguous_split_chunks: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return equal parts of a tensor.

    Args:
        tensor: the tensor.
        dim: the dimension to cut.
        num_partitions: number of parts.
        contiguous_split_chunks: return parts with memory of their own.
    """
    parts = tensor.split(divide(tensor.shape[dim], num_partitions), dim)
    return tuple(part.contiguous() for part in parts) if contiguous_split_chunks else tuple(parts)


def split_tensor_along_last_dim(
    tensor: torch.Tensor, num_partitions: int, contiguous_split_chunks: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return equal parts of the last dimension of a tensor.

    Args:
        tensor: the tensor.
        num_partitions: number of parts.
        contiguous_split_chunks: return parts with memory of their own.
    """
    return split_tensor_along_dim(tensor, -1, num_partitions, contiguous_split_chunks)


def split_tensor_along_second_dim(
    tensor: torch.Tensor, num_partitions: int, contiguous_split_chunks: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return equal parts of the second dimension of a tensor.

    Args:
        tensor: the tensor.
        num_partitions: number of parts.
        contiguous_split_chunks: return parts with memory of their own.
    """
    return split_tensor_along_dim(tensor, 1, num_partitions, contiguous_split_chunks)


def cumsum(tensor: torch.Tensor, dim: int = 0, tril_size: int = 2048) -> torch.Tensor:
    """Return cumulated sums.

    Args:
        tensor: the tensor.
        dim: the dimension.
        tril_size: not needed: how hardware divides the sum into matmuls.
    """
    return torch.cumsum(tensor, dim)


def indices_split_along_dim(
    tensor: torch.Tensor | None, dim: int, rank: int, num_partitions: int
) -> torch.Tensor | None:
    """Return the indices of one of the equal parts of a dimension; None without a tensor.

    Args:
        tensor: the tensor.
        dim: the dimension to cut.
        rank: which part.
        num_partitions: number of parts.
    """
    if tensor is None:
        return None
    size = divide(tensor.shape[dim], num_partitions)
    return torch.arange(size, device=tensor.device) + rank * size


class EmbeddingUtility:
    """Which ids of a vocabulary a rank has: the first one, and the one after the last."""

    @staticmethod
    def range_from_per_partition_vocab_size(
        per_partition_vocab_size: int, rank: int, world_size: int
    ) -> tuple[int, int]:
        """Return the range of a rank that has so many ids."""
        return rank * per_partition_vocab_size, (rank + 1) * per_partition_vocab_size

    @staticmethod
    def range_from_global_vocab_size(global_vocab_size: int, rank: int, world_size: int) -> tuple[int, int]:
        """Return the range of a rank of a vocabulary."""
        size = divide(global_vocab_size, world_size)
        return EmbeddingUtility.range_from_per_partition_vocab_size(size, rank, world_size)
