"""Embeddings that ranks divide, by ids or by features."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..errors import ConfigError
from . import mappings, simulated
from .arithmetic import divide, get_padding_length
from .parameters import Initializer, draw, parallel_parameter


class ParallelEmbedding(nn.Module):
    """An embedding whose ranks each have a part of the vocabulary, or of the features.

    Args:
        num_embeddings: size of the vocabulary.
        embedding_dim: number of features.
        padding_idx: as of `torch.nn.Embedding`.
        max_norm: as of `torch.nn.Embedding`.
        norm_type: as of `torch.nn.Embedding`.
        scale_grad_by_freq: as of `torch.nn.Embedding`.
        sparse: as of `torch.nn.Embedding`.
        init_method: draws the whole weight, in place.
        device: device of the weight.
        dtype: dtype of the weight.
        shard_across_embedding: divide features in place of ids.
        pad: add rows or columns until ranks can divide them, for inference.
        sequence_parallel_enabled: return this rank's part of the sequence.
        tensor_model_parallel_group: the ranks; None: those of tensor parallelism.
        sequence_dimension: dimension of the sequence in the result; None: the sequence becomes the first dimension.
        rank_ordering: which part each rank has.
        collect_output: exchange results; otherwise return this rank's.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        init_method: Initializer = nn.init.normal_,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        shard_across_embedding: bool = False,
        pad: bool = False,
        sequence_parallel_enabled: bool = False,
        tensor_model_parallel_group: dist.ProcessGroup | None = None,
        sequence_dimension: int | None = None,
        rank_ordering: list[int] | None = None,
        collect_output: bool = True,
    ) -> None:
        super().__init__()
        self.tensor_model_parallel_group = mappings.group_or_tensor(tensor_model_parallel_group)
        self.tp_size = mappings.size_of(self.tensor_model_parallel_group)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse, self.dtype = scale_grad_by_freq, sparse, dtype
        self.shard_across_embedding, self.pad, self.collect_output = shard_across_embedding, pad, collect_output
        self.sequence_parallel_enabled, self.sequence_dim = sequence_parallel_enabled, sequence_dimension
        self.pad_size = 0
        if pad:
            divided = embedding_dim if shard_across_embedding else num_embeddings
            self.pad_size = get_padding_length(divided, self.tp_size)
        self.num_embeddings = num_embeddings + (0 if shard_across_embedding else self.pad_size)
        self.embedding_dim = embedding_dim + (self.pad_size if shard_across_embedding else 0)
        self.padding_idx, self.init_method = padding_idx, init_method
        self._find_range()
        self.weight = parallel_parameter(
            (self.num_embeddings, self.embedding_dim),
            1 if shard_across_embedding else 0,
            init_method,
            group=self.tensor_model_parallel_group,
            dtype=dtype,
            device=device,
            rank_ordering=rank_ordering,
        )

    def init_weight_cpu(self) -> None:
        """Draw the weight again, as when the layer was made."""
        draw(self.weight, self.init_method, mappings.rank_in(self.tensor_model_parallel_group))

    def _find_range(self) -> None:
        """The ids of this rank, and which of them is padding."""
        if self.shard_across_embedding:
            self.start_index, self.end_index = 0, self.num_embeddings
            return
        size = divide(self.num_embeddings, self.tp_size)
        self.start_index = mappings.rank_in(self.tensor_model_parallel_group) * size
        self.end_index = self.start_index + size
        if self.padding_idx is not None:
            is_here = self.start_index <= self.padding_idx < self.end_index
            self.padding_idx = self.padding_idx - self.start_index if is_here else None

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of ids.

        Args:
            input_: ids, which ranks have alike.
        """
        if self.pad and self.training:
            raise ConfigError("Layers with pad=True do not train.", hint="Call model.eval(), or pass pad=False.")
        return self._of_features(input_) if self.shard_across_embedding else self._of_ids(input_)

    def _looked_up(self, ids: torch.Tensor) -> torch.Tensor:
        options = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return F.embedding(ids.long(), self.weight, *options)

    def _of_features(self, ids: torch.Tensor) -> torch.Tensor:
        part = self._looked_up(ids)
        if not self.collect_output:
            return part
        whole = mappings.gather_from_tensor_model_parallel_region(part, self.tensor_model_parallel_group)
        return whole[..., : self.embedding_dim - self.pad_size] if self.pad_size else whole

    def _of_ids(self, ids: torch.Tensor) -> torch.Tensor:
        group = self.tensor_model_parallel_group
        if self.tp_size > 1:
            start: int | torch.Tensor = self.start_index
            if simulated.is_simulated(group):
                start = simulated.rank_of(group) * divide(self.num_embeddings, self.tp_size)
            own = ids - start
            is_here = (own >= 0) & (own < self.weight.shape[0])
            found = self._looked_up(own * is_here)
            found = found * is_here.unsqueeze(-1).to(found.dtype)
        else:
            found = self._looked_up(ids)
        if not self.collect_output:
            return found
        if not self.sequence_parallel_enabled:
            return mappings.reduce_from_tensor_model_parallel_region(found, group)
        if self.sequence_dim is None:
            return mappings.reduce_scatter_to_sequence_parallel_region(found.transpose(0, 1), 0, group)
        return mappings.reduce_scatter_to_sequence_parallel_region(found, self.sequence_dim, group)

    def preshard_hook(self, model_state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Pad the weight of a whole checkpoint as this layer is padded.

        Args:
            model_state_dict: the tensors, by name.
            prefix: name of the weight.
        """
        if self.pad_size:
            sides = (0, self.pad_size) if self.shard_across_embedding else (0, 0, 0, self.pad_size)
            model_state_dict[prefix] = F.pad(model_state_dict[prefix], sides)
