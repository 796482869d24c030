"""Random numbers: bits, uniform numbers, dropout, and the states of the generators."""

from __future__ import annotations

import torch

from ..core import Core, Rule, refuse, require
from ..cost import ASSUMED, ISA
from ..dtypes import lowest_bits
from ..random_numbers import Xorwow
from ..tensor import NkiTensor
from . import rules
from .base import SBUF, Engine, Instruction, Operand, instruction

_GENERATORS = {Engine.vector: 4, Engine.gpsimd: 1}


def generator(core: Core, engine: Engine) -> Xorwow:
    """Return the generator of an engine; one that nothing seeded starts with the seed 0."""
    if engine.name not in core.generators:
        core.generators[engine.name] = Xorwow.seeded(0, lanes=128, generators=_GENERATORS[engine])
    return core.generators[engine.name]


def _bits(core: Core, engine: Engine, dst: NkiTensor) -> torch.Tensor:
    drawn = generator(core, engine).draw(*dst.extent)
    return torch.from_numpy(drawn.astype("int64"))


def _check_engine(instruction: Instruction, core: Core, engine: Engine, oldest: dict[Engine, int]) -> None:
    needed = oldest[engine]
    require(core.generation >= needed, Rule.ENGINE_GENERATION, of=instruction, engine=engine, needed=needed)


@instruction(ASSUMED)
class Rng(Instruction):
    """Fill a tile of integers with random bits: the lowest of 32."""

    ENGINES = (Engine.vector, Engine.gpsimd)
    DTYPES = {"dst": rules.INTEGERS - {"bool"}}

    dst: NkiTensor
    engine: Engine = Engine.vector

    def check(self, core: Core) -> None:
        _check_engine(self, core, self.resolved_engine(core), {Engine.vector: 2, Engine.gpsimd: 3})

    def run(self, core: Core) -> None:
        self.dst.write(lowest_bits(_bits(core, self.resolved_engine(core), self.dst), self.dst.storage.format))


@instruction(ASSUMED)
class Rand2(Instruction):
    """Fill a tile with uniform numbers between two numbers or vectors; needs NeuronCore-v4."""

    MIN_GENERATION = 4
    RENAMED = {"low": "min", "high": "max"}

    dst: NkiTensor
    low: Operand
    high: Operand

    def check(self, core: Core) -> None:
        is_known = not isinstance(self.low, NkiTensor) and not isinstance(self.high, NkiTensor)
        require(not is_known or self.low < self.high, Rule.RANDOM_RANGE, of=self, operand="min")

    def run(self, core: Core) -> None:
        share = (_bits(core, Engine.vector, self.dst) >> 8).float() * 2.0**-24
        low, high = self.vector("low"), self.vector("high")
        self.dst.write(low + share * (high - low))


@instruction(ISA, elementwise=True)
class Dropout(Instruction):
    """Replace elements by 0 with a probability, a number or a vector; the others are not scaled."""

    SAME_DTYPE = ("data", "dst")

    dst: NkiTensor
    data: NkiTensor
    prob: Operand

    def check(self, core: Core) -> None:
        if isinstance(self.prob, NkiTensor):
            if not self.data.storage.format.is_float:
                rules.dtype_among(self.OPCODE, "prob", self.prob, {"float32"})
        elif not 0 <= self.prob <= 1:
            refuse(Rule.PROBABILITY, of=self, operand="prob")

    def run(self, core: Core) -> None:
        share = (_bits(core, Engine.vector, self.dst) >> 8).float() * 2.0**-24
        dropped = share < self.vector("prob")
        data = self.data.read()
        self.dst.write(torch.where(dropped.reshape(data.shape), torch.zeros((), dtype=data.dtype), data))


@instruction(ASSUMED)
class SetRngSeed(Instruction):
    """Seed the vector engine's generators with the 32 bits of a tile of one element."""

    DTYPES = {"src_seeds": {"int32", "uint32", "float32"}}

    src_seeds: NkiTensor

    def check(self, core: Core) -> None:
        require(self.src_seeds.shape == (1, 1), Rule.ONE_ELEMENT, of=self.src_seeds)

    def run(self, core: Core) -> None:
        seed = int(self.src_seeds.read().view(torch.int32).item())
        generators = _GENERATORS[Engine.vector]
        core.generators[Engine.vector.name] = Xorwow.seeded(seed, lanes=128, generators=generators)


class _StateOfGenerator(Instruction):
    """What reading and setting a state have in common."""

    ENGINES = (Engine.gpsimd, Engine.vector)
    DTYPES = dict.fromkeys(("src_seeds", "dst"), {"uint32"})
    MIN_GENERATION = 3
    engine: Engine

    def check(self, core: Core) -> None:
        engine = self.resolved_engine(core)
        _check_engine(self, core, engine, {Engine.gpsimd: 3, Engine.vector: 4})
        words = generator(core, engine).words_per_lane
        fits = self.tile.elements_per_partition == words
        require(fits, Rule.GENERATOR_STATE, of=self, engine=engine, words=words)


@instruction(ASSUMED, "150 + N; vector: max(64, N)")
class RandSetState(_StateOfGenerator):
    """Set the generator of each lane: 6 words on GpSimd, 24 on the vector engine; needs NeuronCore-v3."""

    MEMORIES = {"src_seeds": SBUF}

    src_seeds: NkiTensor
    engine: Engine = Engine.gpsimd

    def run(self, core: Core) -> None:
        states = self.src_seeds.integers().reshape(self.src_seeds.num_partitions, -1)
        generator(core, self.resolved_engine(core)).load(states.numpy())


@instruction(ASSUMED, "150 + N; vector: max(64, N)")
class RandGetState(_StateOfGenerator):
    """Write the generator of each lane: 6 words on GpSimd, 24 on the vector engine; needs NeuronCore-v3."""

    dst: NkiTensor
    engine: Engine = Engine.gpsimd

    def run(self, core: Core) -> None:
        states = generator(core, self.resolved_engine(core)).store(self.dst.num_partitions)
        self.dst.write(torch.from_numpy(states.astype("int64")))
