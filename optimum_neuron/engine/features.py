"""Features of images or audio on their way into a compiled prompt.

    index_RT = feature_index(input_ids, image_token_id)
    features = PromptFeatures(index_RT=index_RT, features_RFD=features)

Shape legend: R sequences, T columns, A axes of positions, F features of a sequence, D hidden.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from ..compiler import Graph
    from .packing import Packing
    from .sequences import Group

Modality = Literal["image", "audio"]
"""Input beside text whose features stand for tokens of a prompt."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptFeatures:
    """Features of images or audio, and where the columns of a padded batch read them."""

    index_RT: torch.Tensor
    """0 for a text token, 1 + i for feature i of the sequence."""
    features_RFD: torch.Tensor
    """Features of each sequence, one image or audio after the other; sequences with fewer end with zeros."""
    blocks_RT: torch.Tensor | None = None
    """Number of each column's block, whose tokens see each other in both directions; 0, as None: no block."""
    positions_RTA: torch.Tensor | None = None
    """Rotary positions of each column in time, height, and width; None: those of text."""
    offset_R1: torch.Tensor | None = None
    """Added to the slots of later tokens for their rotary positions; None: 0."""
    modality: Modality = "image"
    """First part of the names of the graph's inputs."""

    def take(self, group: Group) -> PromptFeatures:
        """Return the features of a group of sequences."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "modality"]
        tensors = {name: getattr(self, name) for name in names}
        parts: dict[str, Any] = {name: None if one is None else group.take(one) for name, one in tensors.items()}
        return dataclasses.replace(self, **parts)

    def inputs(self, packing: Packing, length: int, graph: Graph) -> list[torch.Tensor]:
        """Return the inputs of a prefill or score graph of `length` tokens, in its order."""
        import torch

        index_name, features_name = f"{self.modality}_index", f"{self.modality}_features"
        missing = graph.inputs[features_name].shape[1] - self.features_RFD.shape[1]
        # Negative padding cuts: a short prompt has no tokens for the features that are cut off.
        features = torch.nn.functional.pad(self.features_RFD, (0, 0, 0, missing))
        inputs = {index_name: packing.pack(self.index_RT, length), features_name: features}
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
    mask_RT = mask_RT.long()
    largest_R1 = (positions_RTA.amax(-1) * mask_RT).amax(1, keepdim=True)
    return largest_R1 + 1 - mask_RT.sum(1, keepdim=True)


def feature_index(input_ids_BT: torch.Tensor, token_id: int) -> torch.Tensor:
    """Return 0 for each text token, and 1 + i for the i-th image or audio token of its sequence."""
    is_placeholder_BT = input_ids_BT == token_id
    return is_placeholder_BT.long().cumsum(1) * is_placeholder_BT
