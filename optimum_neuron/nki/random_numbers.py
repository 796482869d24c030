"""The generators of random numbers in the engines: XORWOW, one for each lane, four on the vector engine.

The algorithm and the sizes of its states are documented. How a 32-bit seed becomes states, and the order in which the
vector engine takes its four generators, are not: here a seed is spread by the mixing of SplitMix64, and the four take
turns. The same seed yields the same numbers; the hardware's numbers are others.

    >>> from optimum_neuron.nki.random_numbers import Xorwow
    >>> lanes = Xorwow.seeded(7, lanes=128, generators=4)
    >>> lanes.draw(128, 10).shape
    (128, 10)
"""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

WORDS = 6
"""32-bit words of one generator's state."""
_STEP = np.uint32(362437)


@dataclasses.dataclass
class Xorwow:
    """Generators of all lanes of an engine."""

    state: np.ndarray
    """Words of the generators, [words, lanes, generators of a lane]."""

    @classmethod
    def seeded(cls, seed: int, *, lanes: int, generators: int) -> Self:
        """Spread a seed over all generators."""
        count = WORDS * lanes * generators
        mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64((seed % 2**32) * count)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        words = (mixed ^ (mixed >> np.uint64(31))).astype(np.uint32)
        return cls(words.reshape(WORDS, lanes, generators))

    @property
    def words_per_lane(self) -> int:
        """Words of the states of one lane."""
        return WORDS * self.state.shape[2]

    def load(self, states: np.ndarray) -> None:
        """Set the states of the first lanes, one row for each."""
        lanes = states.shape[0]
        rows = states.astype(np.uint32).reshape(lanes, self.state.shape[2], WORDS)
        self.state[:, :lanes] = rows.transpose(2, 0, 1)

    def store(self, lanes: int) -> np.ndarray:
        """Return the states of the first lanes, one row for each."""
        return self.state[:, :lanes].transpose(1, 2, 0).reshape(lanes, -1)

    def draw(self, lanes: int, elements: int) -> np.ndarray:
        """Return 32 random bits for each element of the first lanes."""
        x, y, z, w, v, d = (word[:lanes].copy() for word in self.state)
        drawn = []
        for _ in range(-(-elements // x.shape[1])):
            mixed = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (mixed ^ (mixed << np.uint32(1)))
            d = d + _STEP
            drawn.append(v + d)
        self.state[:, :lanes] = np.stack([x, y, z, w, v, d])
        return np.concatenate(drawn, axis=1)[:, :elements]
