"""What a prompt has beside its tokens, for decoders that read images: features, what these see, and where they are.

Shape legend: B batch, T tokens, A axes of positions, D hidden.
"""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt whose tokens start at position 0."""

    embeds_BTD: torch.Tensor
    """What stands for the tokens: their embeddings, or features of images."""
    blocks_BT: torch.Tensor | None = None
    """Number of each token's block; tokens of a block see each other in both directions. 0: no block."""
    blocks_pass_windows: bool = False
    """Whether tokens of a block see each other beyond the window of a layer too."""

    positions_BTA: torch.Tensor | None = None
    """Rotary positions of each token in time, height, and width; None: its index."""
    offset_B1: torch.Tensor | None = None
    """Added to the slots of later tokens for their rotary positions, where tokens have several."""
    added: tuple[torch.Tensor, ...] = ()
    """Added [B, T, D] to the results of the first layers, one for each."""

    @property
    def together(self) -> torch.Tensor | None:
        """Which tokens are of one block: boolean [B, 1, T, T]; None without blocks."""
        if self.blocks_BT is None:
            return None
        queries, keys = self.blocks_BT[:, None, :, None], self.blocks_BT[:, None, None, :]
        return (queries == keys) & (queries > 0)


def axis_positions(positions_BT: torch.Tensor, offset_B1: torch.Tensor, prompt: Prompt | None) -> torch.Tensor:
    """Rotary positions where tokens of images have several, and the state that later tokens read is set by a prompt.

    Those of a prompt are [B, T, A]. Those of later tokens, [B, T], are equal on all axes.
    """
    if prompt is None:
        return positions_BT + offset_B1
    assert prompt.positions_BTA is not None and prompt.offset_B1 is not None, "prompts of such models have both"
    offset_B1.copy_(prompt.offset_B1)
    return prompt.positions_BTA
