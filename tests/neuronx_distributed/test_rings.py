"""Rings of ranks."""

from __future__ import annotations

from optimum_neuron.neuronx_distributed import CollectivesConfig


def test_each_rank_sends_to_the_next_of_its_group():
    pairs = CollectivesConfig(replica_groups=[[0, 2, 4], [1]]).rank_src_tgt_pairs
    assert pairs == {rank: [[0, 2], [2, 4], [4, 0]] for rank in (0, 2, 4)} | {1: [[1, 1]]}
