"""Slots of a cache that is divided into blocks: a row's slots are in the blocks that its table lists, in order.

Many requests share one pool of blocks, and one takes as many as it has tokens. Block 0 belongs to no request: tables
list it where a row has no block yet, and padding writes zeros to it. What it holds is never seen, by the masks of slots
behind a token's position; but 0 times NaN is NaN, so it must not hold what padding behind NaN computes.

Shape legend: B rows, T new tokens, M blocks in a row's table, P slots of a block, S = M * P slots of a row, A blocks
of the pool, K key heads, H head width, V width of a value.
"""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks:
    """Where the tokens of one call go, and where those are that they see."""

    table_BM: torch.Tensor
    """Blocks of each row's slots."""
    blocks_BT: torch.Tensor
    """Block of each new token."""
    places_BT: torch.Tensor
    real_BT: torch.Tensor | None = None
    """Whether it is no padding; None where every token is real."""

    def without_padding(self, x_BKTH: torch.Tensor) -> torch.Tensor:
        """Return keys or values with zeros for padding."""
        return x_BKTH if self.real_BT is None else torch.where(self.real_BT[:, None, :, None], x_BKTH, 0)

    def write(
        self,
        key_cache_AKHP: torch.Tensor,
        value_cache_AKPV: torch.Tensor,
        key_BKTH: torch.Tensor,
        value_BKTV: torch.Tensor,
    ) -> None:
        """Write new keys and values in place."""
        new_keys, new_values = key_BKTH.transpose(1, 2), value_BKTV.transpose(1, 2)
        key_cache_AKHP[self.blocks_BT, :, :, self.places_BT] = new_keys.to(key_cache_AKHP.dtype)
        value_cache_AKPV[self.blocks_BT, :, self.places_BT] = new_values.to(value_cache_AKPV.dtype)

    def read(self, key_cache_AKHP: torch.Tensor, value_cache_AKPV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys [B, K, S, H] and values [B, K, S, V] of each row's slots."""
        key_BMKHP, value_BMKPV = key_cache_AKHP[self.table_BM], value_cache_AKPV[self.table_BM]
        key_BKHS = key_BMKHP.permute(0, 2, 3, 1, 4).flatten(3)
        return key_BKHS.transpose(2, 3), value_BMKPV.transpose(1, 2).flatten(2, 3)


def place_tokens(
    table_BM: torch.Tensor, positions_BT: torch.Tensor, num_new_B: torch.Tensor | None, block_size: int
) -> Blocks:
    """Return the blocks of one call's tokens; behind the first `num_new_B` of a row they are padding."""
    blocks_BT, real_BT = table_BM.gather(1, positions_BT // block_size), None
    if num_new_B is not None:
        real_BT = torch.arange(positions_BT.shape[1]) < num_new_B[:, None]
        blocks_BT = torch.where(real_BT, blocks_BT, 0)
    return Blocks(table_BM=table_BM, blocks_BT=blocks_BT, places_BT=positions_BT % block_size, real_BT=real_BT)
