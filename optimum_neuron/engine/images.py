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

    from .packing import Packing
    from .sequences import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptImages:
    """Features of images, and where the columns of a padded batch read them."""

    index_RT: torch.Tensor
    """0 for a text token, 1 + i for feature i of the sequence."""
    features_RFD: torch.Tensor
    """Features of each sequence's images, one after the other; sequences with fewer end with zeros."""

    def take(self, group: Group) -> PromptImages:
        """Return the images of a group of sequences."""
        return PromptImages(index_RT=group.take(self.index_RT), features_RFD=group.take(self.features_RFD))

    def inputs(self, packing: Packing, length: int, num_features: int) -> list[torch.Tensor]:
        """Return the inputs of a prefill graph of `length` tokens that has room for `num_features` features."""
        import torch

        missing = num_features - self.features_RFD.shape[1]
        # Negative padding cuts: a short prompt has no tokens for the features that are cut off.
        return [packing.pack(self.index_RT, length), torch.nn.functional.pad(self.features_RFD, (0, 0, 0, missing))]


def image_index(input_ids_BT: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return 0 for each text token, and 1 + i for the i-th image token of its sequence."""
    is_image_BT = input_ids_BT == image_token_id
    return is_image_BT.long().cumsum(1) * is_image_BT
