"""Features of images on their way into a compiled prompt.

    index_RT = image_index(input_ids, image_token_id)
    images = PromptImages(index_RT=index_RT, features_RFD=features)

Shape legend: R sequences, T columns, F features of a sequence, D hidden.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..compiler import Graph
    from .packing import Packing
    from .sequences import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptImages:
    """Features of images, and where the columns of a padded batch read them."""

    index_RT: torch.Tensor
    """0 for a text token, 1 + i for feature i of the sequence."""
    features_RFD: torch.Tensor
    """Features of each sequence's images, one after the other; sequences with fewer end with zeros."""
    blocks_RT: torch.Tensor | None = None
    """Number of each column's block, whose tokens see each other in both directions; 0, as None: no block."""

    def take(self, group: Group) -> PromptImages:
        """Return the images of a group of sequences."""
        tensors = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        parts = {name: None if tensor is None else group.take(tensor) for name, tensor in tensors.items()}
        return PromptImages(**parts)

    def inputs(self, packing: Packing, length: int, graph: Graph) -> list[torch.Tensor]:
        """Return the inputs of a prefill or score graph of `length` tokens, in its order."""
        import torch

        missing = graph.inputs["image_features"].shape[1] - self.features_RFD.shape[1]
        # Negative padding cuts: a short prompt has no tokens for the features that are cut off.
        features = torch.nn.functional.pad(self.features_RFD, (0, 0, 0, missing))
        inputs = {"image_index": packing.pack(self.index_RT, length), "image_features": features}
        blocks_RT = torch.zeros_like(self.index_RT) if self.blocks_RT is None else self.blocks_RT
        inputs["block_ids"] = packing.pack(blocks_RT, length)
        return [inputs[name] for name in graph.inputs if name in inputs]


def image_index(input_ids_BT: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return 0 for each text token, and 1 + i for the i-th image token of its sequence."""
    is_image_BT = input_ids_BT == image_token_id
    return is_image_BT.long().cumsum(1) * is_image_BT
