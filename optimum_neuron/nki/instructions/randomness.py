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

_INTEGERS = rules.INTEGERS - {"bool"}
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

    dst: NkiTensor
    engine: Engine = Engine.vector

    def check(self, core: Core) -> None:
        rules.dtype_among(self.OPCODE, "dst", self.dst, _INTEGERS)
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
        low = rules.scalar_operand(self.OPCODE, "min", self.low, self.dst)
        high = rules.scalar_operand(self.OPCODE, "max", self.high, self.dst)
        self.dst.write(low + share * (high - low))


@instruction(ISA, elementwise=True)
class Dropout(Instruction):
    """Replace elements by 0 with a probability, a number or a vector; the others are not scaled."""

    dst: NkiTensor
    data: NkiTensor
    prob: Operand

    def check(self, core: Core) -> None:
        rules.same_dtype(self.OPCODE, data=self.data, dst=self.dst)
        if isinstance(self.prob, NkiTensor):
            is_float = self.data.storage.format.is_float
            if not is_float:
                rules.dtype_among(self.OPCODE, "prob", self.prob, {"float32"})
        elif not 0 <= self.prob <= 1:
            refuse(Rule.PROBABILITY, of=self, operand="prob")

    def run(self, core: Core) -> None:
        share = (_bits(core, Engine.vector, self.dst) >> 8).float() * 2.0**-24
        dropped = share < rules.scalar_operand(self.OPCODE, "prob", self.prob, self.data)
        data = self.data.read()
        self.dst.write(torch.where(dropped.reshape(data.shape), torch.zeros((), dtype=data.dtype), data))


@instruction(ASSUMED)
class SetRngSeed(Instruction):
    """Seed the vector engine's generators with the 32 bits of a tile of one element."""

    src_seeds: NkiTensor

    def check(self, core: Core) -> None:
        rules.dtype_among(self.OPCODE, "src_seeds", self.src_seeds, {"int32", "uint32", "float32"})
        require(self.src_seeds.shape == (1, 1), Rule.SEED, of=self)

    def run(self, core: Core) -> None:
        seed = int(self.src_seeds.read().view(torch.int32).item())
        generators = _GENERATORS[Engine.vector]
        core.generators[Engine.vector.name] = Xorwow.seeded(seed, lanes=128, generators=generators)


class _StateOfGenerator(Instruction):
    """What reading and setting a state have in common."""

    ENGINES = (Engine.gpsimd, Engine.vector)
    MIN_GENERATION = 3
    engine: Engine

    def check(self, core: Core) -> None:
        engine, (label,) = self.resolved_engine(core), (*self.READS, *self.WRITES)
        rules.dtype_among(self.OPCODE, label, self.tile, {"uint32"})
        _check_engine(self, core, engine, {Engine.gpsimd: 3, Engine.vector: 4})
        words = generator(core, engine).words_per_lane
        fits = self.tile.elements_per_partition == words
        require(fits, Rule.GENERATOR_STATE, of=self, label=label, engine=engine, words=words)


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
