"""Features of images on their way into a compiled prompt.

    index_RT = image_index(input_ids, image_token_id)
    images = PromptImages(index_RT=index_RT, features_RFD=features)

Shape legend: R sequences, T columns, A axes of positions, F features of a sequence, D hidden.
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
    positions_RTA: torch.Tensor | None = None
    """Rotary positions of each column in time, height, and width; None: those of text."""
    offset_R1: torch.Tensor | None = None
    """Added to the slots of later tokens for their rotary positions; None: 0."""

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
        positions_RTA = self.positions_RTA
        if positions_RTA is None:
            positions_RTA = packing.positions_RT.clamp(min=0)[:, :, None].expand(-1, -1, 3)
        inputs["axis_positions"] = packing.pack(positions_RTA, length)
        offset_R1 = self.offset_R1
        inputs["position_offset"] = torch.zeros_like(self.index_RT[:, :1]) if offset_R1 is None else offset_R1
        return [inputs[name] for name in graph.inputs if name in inputs]


def position_offset(positions_RTA: torch.Tensor, mask_RT: torch.Tensor) -> torch.Tensor:
    """Return what is added [R, 1] to the slots of later tokens: they go on behind the largest position of a prompt."""
    largest_RT = positions_RTA.amax(-1).masked_fill(mask_RT == 0, -1)
    return largest_RT.amax(1, keepdim=True) + 1 - mask_RT.long().sum(1, keepdim=True)


def image_index(input_ids_BT: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return 0 for each text token, and 1 + i for the i-th image token of its sequence."""
    is_image_BT = input_ids_BT == image_token_id
    return is_image_BT.long().cumsum(1) * is_image_BT
