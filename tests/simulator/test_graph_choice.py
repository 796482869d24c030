"""The graphs that read a prompt, of programs with made-up sizes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from optimum_neuron.simulator import EstimateRequest
from optimum_neuron.simulator.graph_choice import choose_graphs


def spec(*shape):
    return SimpleNamespace(shape=shape)


class Sizes:
    """The part of a program that a choice reads."""

    def __init__(self, sizes, chunks=None, states=None):
        self.sizes, self.states, self.pool = sizes, states or {}, chunks
        more = {"block_table": spec(1, 8)} if chunks else {}
        self.graphs = {
            f"{role}_{size}": SimpleNamespace(inputs={"input_ids": spec(1, 1 if role == "decode" else size), **more})
            for role, all_sizes in sizes.items()
            for size in all_sizes
        }

    def by_size(self, role):
        return {size: f"{role}_{size}" for size in self.sizes.get(role, ())}

    def chunks(self, role):
        return {size: {slots: f"{role}_{size}" for slots in self.pool} for size in self.sizes[role]}


def test_rest_of_a_prompt_takes_the_chunks_of_the_engine():
    program = Sizes({"prefill": (16,), "extend": (8, 64), "decode": (128,)})
    chosen = choose_graphs(program, EstimateRequest(sequence_length=128, input_length=20, output_length=4))
    assert chosen.extends == {"extend_8": 1}, "64 tokens would be nearly all padding of 4"
    assert chosen.padding.prefill_tokens == 16 + 8


@pytest.mark.parametrize(("rate", "cached"), [(0.0, 0), (0.4, 16), (0.5, 24), (1.0, 48)])
def test_whole_chunks_of_a_prompt_are_found(rate, cached):
    states = {"key_cache_0": spec(9, 2, 16, 8), "value_cache_0": spec(9, 2, 8, 16)}
    program = Sizes({"prefill": (8,), "decode": (64,)}, chunks=(64,), states=states)
    request = EstimateRequest(sequence_length=64, input_length=56, output_length=4, prefix_hit_rate=rate)
    chosen = choose_graphs(program, request)
    assert chosen.padding.cached_tokens == cached and chosen.num_chunks == (56 - cached) // 8
