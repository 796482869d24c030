"""The blocks of a cache: who uses them, and which hold what a later prompt begins with.

A block that a request has filled with its prompt keeps its content when the request ends, until the block is needed:
the one that was not used for the longest time is taken first. Prompts find such blocks by a hash of their content and
of all tokens before it. Block 0 belongs to nobody, see `models/common/blocks.py`.

    pool = BlockPool(num_blocks=9, block_size=16)
    block = pool.allocate()
    pool.release(block)
"""

from __future__ import annotations

import array
import collections
import hashlib
from collections.abc import Iterable, Sequence


def chain_hashes(tokens: Sequence[int], block_size: int, key: bytes = b"") -> list[bytes]:
    """Return a hash for each full block of tokens, which depends on all tokens before it.

    Args:
        key: what else keys and values depend on, such as an adapter.
    """
    hashes, previous = [], key
    for start in range(0, len(tokens) - block_size + 1, block_size):
        content = array.array("q", tokens[start : start + block_size]).tobytes()
        previous = hashlib.blake2b(previous + content, digest_size=16).digest()
        hashes.append(previous)
    return hashes


class BlockPool:
    """Blocks with counts of their users."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.num_usable = num_blocks - 1
        """Blocks that requests can have."""
        self._free = list(range(num_blocks - 1, 0, -1))
        self._num_users: dict[int, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._idle: collections.OrderedDict[int, None] = collections.OrderedDict()
        """Blocks without users that keep their content, the one longest unused first."""
        self._spoilt: set[int] = set()
        self._reused: list[int] = []

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated, those with content included."""
        return len(self._free) + len(self._idle)

    @property
    def num_used(self) -> int:
        """Blocks that requests have."""
        return len(self._num_users)

    @property
    def num_cached(self) -> int:
        """Blocks that prompts can find, in use or not."""
        return len(self._block_of)

    def num_for(self, num_tokens: int) -> int:
        """Return how many blocks so many tokens take."""
        return -(-num_tokens // self.block_size)

    def allocate(self) -> int:
        """Return a block for one user; its content may be anything."""
        if self._free:
            block = self._free.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._forget(block)
        else:
            raise IndexError("all blocks are in use")
        self._num_users[block] = 1
        if block in self._spoilt:
            self._spoilt.remove(block)
            self._reused.append(block)
        return block

    def release(self, block: int) -> None:
        """Take a block from one of its users."""
        self._num_users[block] -= 1
        if self._num_users[block]:
            return
        del self._num_users[block]
        if block in self._hash_of:
            self._idle[block] = None
        else:
            self._free.append(block)

    def find(self, hashes: Sequence[bytes]) -> list[int]:
        """Return the blocks that hold the beginning of a prompt, as long as one follows the other."""
        blocks = []
        for content in hashes:
            block = self._block_of.get(content)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def share(self, block: int) -> None:
        """Give a block that was found to one more user."""
        self._idle.pop(block, None)
        self._num_users[block] = self._num_users.get(block, 0) + 1

    def publish(self, block: int, content: bytes) -> None:
        """Let later prompts find a block that is full; the first block of a content is the one that is found."""
        if content not in self._block_of and block not in self._hash_of:
            self._block_of[content], self._hash_of[block] = block, content

    def spoil(self, blocks: Iterable[int]) -> None:
        """Note that blocks hold NaN or infinity, so whoever gets them next has to clear them."""
        self._spoilt.update(blocks)

    def take_reused(self) -> list[int]:
        """Return the spoilt blocks that were allocated since the last call."""
        reused, self._reused = self._reused, []
        return reused

    def is_idle(self, block: int) -> bool:
        """Return whether a block has content and no user."""
        return block in self._idle

    def forget_all(self) -> None:
        """Let no later prompt find what blocks hold now; requests keep them."""
        self._hash_of.clear()
        self._block_of.clear()
        self._free += self._idle
        self._idle.clear()

    def _forget(self, block: int) -> None:
        del self._block_of[self._hash_of.pop(block)]
