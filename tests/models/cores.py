"""Run a decoder that several cores share without compiling it: a thread for each core, which meet at the exchanges."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.func import functional_call

from optimum_neuron.kinds.decoder import state_specs
from optimum_neuron.models import Family, build_decoder
from optimum_neuron.options.configuration import NeuronConfig
from tests.models.steps import NUM_COLUMNS, NUM_TOKENS, Pair


class Group:
    """Cores that exchange tensors; each thread has its rank."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.local = size, threading.Barrier(size), threading.local()
        self.parts: list[torch.Tensor] = [torch.empty(0)] * size

    def exchange(self, part: torch.Tensor) -> list[torch.Tensor]:
        """The parts of all cores, by rank."""
        self.parts[self.local.rank] = part
        self.barrier.wait()
        parts = list(self.parts)
        self.barrier.wait()
        return parts

    def scattered_sum(self, x: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
        """This core's part of the sum."""
        return torch.stack(self.exchange(x)).sum(0).chunk(group_size, dim)[self.local.rank].contiguous()

    @contextlib.contextmanager
    def operators(self) -> Iterator[None]:
        """Give the exchanges this meaning, and no other test."""
        with torch.library._scoped_library("neuron", "IMPL") as library:
            key = "CompositeExplicitAutograd"
            library.impl("rank", lambda group_size: torch.tensor(self.local.rank), key)
            library.impl("all_reduce", lambda x, group_size: torch.stack(self.exchange(x)).sum(0), key)
            library.impl("all_gather", lambda x, dim, group_size: torch.cat(self.exchange(x), dim), key)
            library.impl("reduce_scatter", self.scattered_sum, key)
            yield


@dataclasses.dataclass(frozen=True)
class SharedPair:
    """A decoder of several cores and the transformers model with the same weights; see `steps.Pair`."""

    families: list[Family]
    original: Any

    @classmethod
    def of(cls, models: Pair, group_size: int, **options: Any) -> SharedPair:
        """Divide the decoder of a pair."""
        options |= {"dtype": "float32", "family": models.family.choice.value, "group_size": group_size}
        return cls([build_decoder(models.original.config, **options) for _ in range(group_size)], models.original)

    def weights(self, rank: int) -> dict[str, torch.Tensor]:
        """Parameters of one core."""
        family, state, weights = self.families[rank], self.original.state_dict(), {}
        for name, sources in family.weight_sources.items():
            tensors = [state[source] for source in sources]
            shard = family.shards.of_weights.get(name)
            weights[name] = torch.cat(tensors) if shard is None else shard.part(tensors, rank)
        return weights

    def new_states(self) -> list[list[torch.Tensor]]:
        config = NeuronConfig(batch_size=2, sequence_length=NUM_TOKENS, prefill_buckets=(NUM_COLUMNS,))
        return [[torch.zeros(spec.shape) for spec in state_specs(one, config).values()] for one in self.families]

    def counts(self, *num_tokens: int) -> dict[str, torch.Tensor]:
        """See `Pair.counts`."""
        return Pair(self.families[0], self.original).counts(*num_tokens)

    def run(self, ids_BT: torch.Tensor, positions_BT: torch.Tensor, states: Any, **options: Any) -> torch.Tensor:
        """Logits, which all cores have."""
        group = Group(len(self.families))

        def core(rank: int) -> torch.Tensor:
            group.local.rank = rank
            arguments = (ids_BT, positions_BT, states[rank])
            try:
                with torch.no_grad():
                    return functional_call(self.families[rank].module, self.weights(rank), arguments, options)
            except BaseException:
                group.barrier.abort()
                raise

        with group.operators(), concurrent.futures.ThreadPoolExecutor(group.size) as pool:
            first, *others = [run.result() for run in [pool.submit(core, rank) for rank in range(group.size)]]
        assert all(torch.equal(first, other) for other in others)
        return first
