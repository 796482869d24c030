"""The weights of a compiled model under the names and methods of a `torch.nn.Module`.

Names, and the tensors behind them, are those of the checkpoint; the program may hold several of them as one. It knows
nothing of programs beyond what they need.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..errors import ConfigError, refusal
from ..exporters.prepare import Prepared


class CheckpointParameters:
    """What transformers' models tell about their parameters."""

    prepared: Prepared

    @property
    def name_or_path(self) -> str:
        """The name that the model was loaded by."""
        return self.prepared.source.name

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor of the checkpoint that the program uses, once, with its name.

        The tensors are copies in the dtype of the checkpoint: to change the model, pass others to `replace_weights`.
        """
        assert self.prepared.tensors is not None
        source = self.prepared.tensors.value
        for name in self._names():
            yield name, source.join([name])[0].clone()

    def parameters(self) -> Iterator[torch.Tensor]:
        """The tensors of `named_parameters`."""
        return (tensor for _, tensor in self.named_parameters())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The tensors of `named_parameters` by name, as `replace_weights` takes them."""
        return dict(self.named_parameters())

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Count the elements of the checkpoint's tensors that the program uses.

        Args:
            only_trainable: count those that training changes: none, as the program was captured for inference.
            exclude_embeddings: not possible: a program does not say which of its weights are embeddings.

        Raises:
            ConfigError: the count without embeddings was asked for.
        """
        if exclude_embeddings:
            raise ConfigError(
                refusal(
                    asked="num_parameters(exclude_embeddings=True)",
                    found="a compiled program",
                    why="it does not say which of its weights are embeddings",
                    do="count them with the original transformers model, or leave exclude_embeddings out",
                )
            )
        assert self.prepared.tensors is not None
        specs = self.prepared.tensors.value.specs
        return 0 if only_trainable else sum(specs[name].num_elements for name in self._names())

    def get_memory_footprint(self, return_buffers: bool = True) -> int:
        """Bytes of the weights on the core, in the dtype that they were compiled for.

        Args:
            return_buffers: count the constants of the program too.
        """
        weights = sum(spec.size_bytes for spec in self.prepared.program.weights.values())
        return self.prepared.need.weights if return_buffers else weights

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for names in self.prepared.weight_sources.values() for name in names))
