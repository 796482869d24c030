"""The weights of a compiled model under the names and methods of a `torch.nn.Module`.

Names and tensors are as in the checkpoint; the program may hold several of them as one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..errors import ConfigError
from ..exporters import Prepared


class CheckpointParameters:
    """The parameter methods of transformers' models."""

    prepared: Prepared

    @property
    def name_or_path(self) -> str:
        """Name or path that the model was loaded from."""
        return self.prepared.source.name

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Iterate over the tensors of the checkpoint that the program uses, each once, with its name.

        The tensors are copies in the dtype of the checkpoint; to change the model, call `replace_weights`.
        """
        assert self.prepared.tensors is not None
        source = self.prepared.tensors.value
        for name in self._names():
            yield name, source.join([name])[0].clone()

    def parameters(self) -> Iterator[torch.Tensor]:
        """Iterate over the tensors of `named_parameters`."""
        return (tensor for _, tensor in self.named_parameters())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors of `named_parameters` by name, as `replace_weights` takes them."""
        return dict(self.named_parameters())

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Count the elements of the checkpoint's tensors that the program uses.

        Args:
            only_trainable: count trainable parameters: 0, as the program was captured for inference.
            exclude_embeddings: not supported: a program does not mark its embeddings.

        Raises:
            ConfigError: `exclude_embeddings` is True.
        """
        if exclude_embeddings:
            message = "exclude_embeddings=True is not supported: a compiled program does not mark its embeddings."
            raise ConfigError(message, hint="Count those of the transformers model.", option="exclude_embeddings")
        assert self.prepared.tensors is not None
        specs = self.prepared.tensors.value.specs
        return 0 if only_trainable else sum(specs[name].num_elements for name in self._names())

    def get_memory_footprint(self, return_buffers: bool = True) -> int:
        """Return the bytes of the weights on the core, in the compiled dtype.

        Args:
            return_buffers: count the constants of the program too.
        """
        weights = sum(spec.size_bytes for spec in self.prepared.program.weights.values())
        return self.prepared.need.weights if return_buffers else weights

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for names in self.prepared.weight_sources.values() for name in names))
