"""Slots of a layer that sees only the newest tokens: a ring, in which new tokens replace those that no query sees.

A layer that sees W tokens keeps S = W + C - 1 slots, where C is the most tokens that one call adds (`extend_length`);
the token at position p has slot p modulo S. That makes two things right. The first of C tokens still sees the W - 1
before it, although the last one is written already. A cache that forgets C tokens has all that the next one sees, and
what is left of the forgotten ones counts as too old to be seen. Padding is never written.

A prompt attends to its own tokens, and leaves the last S of them in the ring.

Shape legend: B batch, T new tokens, S slots, K key heads, H head width.
"""

from __future__ import annotations

import dataclasses

import torch

from .states import seen_keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ring:
    """Tokens of one call, and where they go in rings of any size."""

    positions_BT: torch.Tensor
    """Positions of the new tokens: consecutive ones."""
    num_new_B: torch.Tensor
    """Number of real tokens in each row, which come first."""

    def write(
        self,
        key_cache_BKHS: torch.Tensor,
        value_cache_BKSH: torch.Tensor,
        key_BKTH: torch.Tensor,
        value_BKTH: torch.Tensor,
    ) -> None:
        """Write the keys and values of real tokens in place; of a prompt longer than the ring, the last ones."""
        num_slots, num_tokens = key_cache_BKHS.shape[3], key_BKTH.shape[2]
        key_BKTH, value_BKTH = _as_moved(key_BKTH), _as_moved(value_BKTH)
        if num_tokens > num_slots:
            index_BS = (self._positions(num_slots) - self.positions_BT[:, :1]).clamp(min=0)
            key_cache_BKHS.copy_(_take(key_BKTH, index_BS).transpose(2, 3))
            value_cache_BKSH.copy_(_take(value_BKTH, index_BS))
            return
        rows, slots_BT = torch.arange(len(self.num_new_B))[:, None], self.positions_BT % num_slots
        real_BT11 = (torch.arange(num_tokens) < self.num_new_B[:, None])[:, :, None, None]
        old_keys = _as_moved(key_cache_BKHS[rows, :, :, slots_BT])
        old_values = _as_moved(value_cache_BKSH[rows, :, slots_BT])
        new_keys, new_values = (x.transpose(1, 2).to(old_keys.dtype) for x in (key_BKTH, value_BKTH))
        keys, values = torch.where(real_BT11, new_keys, old_keys), torch.where(real_BT11, new_values, old_values)
        key_cache_BKHS[rows, :, :, slots_BT] = keys.to(key_cache_BKHS.dtype)
        value_cache_BKSH[rows, :, slots_BT] = values.to(value_cache_BKSH.dtype)

    def visible(self, num_slots: int, num_keys: int, window: int | None, chunk: int | None = None) -> torch.Tensor:
        """Return which of the first `num_keys` slots each query sees, once the tokens are written: [B, 1, T, keys].

        Padding sees what the last real token sees, so that it sees something.
        """
        keys_B11S = self._positions(num_slots)[:, None, None, :num_keys]
        queries_B1T1 = torch.minimum(self.positions_BT, self._newest_B1)[:, None, :, None]
        return (keys_B11S >= 0) & seen_keys(queries_B1T1, keys_B11S, window, chunk)

    @property
    def _newest_B1(self) -> torch.Tensor:
        """Position of the last real token; 0 before there is one."""
        return (self.positions_BT[:, :1] + self.num_new_B[:, None] - 1).clamp(min=0)

    def _positions(self, num_slots: int) -> torch.Tensor:
        """Position of the token in each slot once the new ones are written, negative in an empty slot: [B, S]."""
        return self._newest_B1 - (self._newest_B1 - torch.arange(num_slots)) % num_slots


def _as_moved(x: torch.Tensor) -> torch.Tensor:
    """Numbers in a dtype that torch gathers and selects: bfloat16 has those of float8."""
    return x.bfloat16() if x.dtype == torch.float8_e4m3fn else x


def _take(x_BKTH: torch.Tensor, index_BS: torch.Tensor) -> torch.Tensor:
    """Tokens of each row by their index: [B, K, S, H]."""
    return x_BKTH.gather(2, index_BS[:, None, :, None].expand(-1, x_BKTH.shape[1], -1, x_BKTH.shape[3]))
