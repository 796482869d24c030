"""The weights of a compiled model under the names and methods of a `torch.nn.Module`.

Names and tensors are as in the checkpoint; the program may hold several of them as one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..errors import ConfigError, nearest
from ..exporters import Prepared


class CheckpointParameters:
    """The parameter methods of transformers' models."""

    prepared: Prepared

    @property
    def name_or_path(self) -> str:
        """Name or path that the model was loaded from."""
        return self.prepared.source.name

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Iterate over the tensors of the checkpoint that the program uses, each once, with its name.

        The tensors are copies in the dtype of the checkpoint; to change the model, call `replace_weights`.

        Args:
            prefix: text before each name, and a dot.
            recurse: False yields nothing: tensors belong to layers, as in transformers' models.
            remove_duplicate: no effect: a tensor with several names has one here.
        """
        assert self.prepared.tensors is not None
        source = self.prepared.tensors.value
        for name in self._names() if recurse else ():
            yield f"{prefix}.{name}" if prefix else name, source.join([name])[0].clone()

    def parameters(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        """Iterate over the tensors of `named_parameters`."""
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def state_dict(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """Return the tensors of `named_parameters` by name, as `replace_weights` takes them."""
        return {f"{prefix}{name}": tensor for name, tensor in self.named_parameters()}

    def get_parameter(self, target: str) -> torch.Tensor:
        """Return a copy of a tensor of `named_parameters`."""
        names = self._names()
        if target not in names:
            message = f"The model has no weights {target}{nearest(target, names) or '.'}"
            raise ConfigError(message, hint="Pass a name of state_dict().", option="target", value=target)
        assert self.prepared.tensors is not None
        return self.prepared.tensors.value.join([target])[0].clone()

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Count the elements of the checkpoint's tensors that the program uses.

        Args:
            only_trainable: count trainable parameters: 0, as the program was captured for inference.
            exclude_embeddings: not supported: a program does not mark its embeddings.
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
