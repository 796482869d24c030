"""Groups of ranks against torch's device meshes and the documented mesh of 64 cores; parts against `chunk`."""

from types import SimpleNamespace

import pytest
import torch
from neuronx_distributed_inference.utils import distributed

from optimum_neuron.neuronx_distributed import simulated
from optimum_neuron.neuronx_distributed_inference import NeuronConfig


def test_parts_are_chunks():
    tensor = torch.arange(48).reshape(2, 6, 4)
    for dim, number in ((1, 3), (2, 2), (0, 2)):
        for rank, expected in enumerate(tensor.chunk(number, dim)):
            for given in (rank, torch.tensor(rank), torch.tensor([rank])):
                assert torch.equal(distributed.split_along_dim(tensor, dim, given, number), expected)
    assert distributed.split_along_dim(None, 0, 0, 2) is None
    assert torch.equal(distributed.split_along_dim0_kernel_wrapper(tensor, torch.tensor([1]), 2, lnc=2), tensor[1:])


@pytest.mark.parametrize("degree", [2, 8])
def test_groups_are_rows_of_a_mesh(degree):
    mesh = torch.arange(64).reshape(-1, degree)
    for group, ranks in enumerate(mesh):
        assert distributed.get_cp_rank(ranks, degree).tolist() == [group] * degree
        assert distributed.get_dp_rank_spmd(ranks, degree).dtype == torch.int32
        assert distributed.get_kv_head_group_number(ranks, degree).tolist() == list(range(degree))


def test_the_mesh_of_8_by_8_pairs_ends_and_middles():
    # Per 16 ranks: 0-3 and 12-15 are a group, 4-11 the other.
    expected = [2 * (rank // 16) + (4 <= rank % 16 < 12) for rank in range(64)]
    assert distributed.get_rank_8_by_8(torch.arange(64)).tolist() == expected
    assert distributed.get_dp_rank(torch.arange(64), 8, 8).tolist() == expected
    assert distributed.get_rank_8_by_8(torch.arange(64), switch_cc=True).tolist() == [rank // 8 for rank in range(64)]
    assert distributed.get_dp_rank(torch.arange(8), 4).tolist() == [0] * 4 + [1] * 4


def test_only_configurations_with_drafts_name_a_group():
    assert distributed.get_tp_group(SimpleNamespace(neuron_config=NeuronConfig())) is None
    with simulated.NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        group = distributed.get_tp_group(SimpleNamespace(neuron_config=SimpleNamespace(use_draft_group=False)))
        assert group.size() == 2
