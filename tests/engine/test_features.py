"""Features of images and audio: which column reads which, and how they are moved to the left with the text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.engine import PromptFeatures, feature_index, plan_packing, position_offset, reads_features

IMAGE = 7
IDS = torch.tensor([[0, 1, IMAGE, IMAGE, 2], [IMAGE, 3, IMAGE, 4, 5]])
MASK = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])


def graph_of(**shapes):
    inputs = {name: TensorSpec(shape=shape, dtype="float32") for name, shape in shapes.items()}
    return SimpleNamespace(inputs={"input_ids": TensorSpec(shape=(2, 6), dtype="int64"), **inputs})


def test_each_placeholder_reads_the_next_feature():
    assert feature_index(IDS, IMAGE).tolist() == [[0, 0, 1, 2, 0], [1, 0, 2, 0, 0]]
    assert not feature_index(IDS, 9).any()


@pytest.mark.parametrize("num_features", [1, 2, 3])
def test_inputs_are_in_the_order_of_the_graph(num_features):
    features = torch.randn(2, 2, 4)
    prompt = PromptFeatures(index_RT=feature_index(IDS, IMAGE), features_RFD=features)
    names = ("image_features", "position_offset", "axis_positions", "block_ids", "image_index")
    graph = graph_of(**dict.fromkeys(names, (2, num_features, 4)))
    inputs = dict(zip(names, prompt.inputs(plan_packing(MASK, 0), 6, graph), strict=True))
    assert inputs["image_index"].tolist() == [[0, 1, 2, 0, 0, 0], [1, 0, 2, 0, 0, 0]]
    kept = min(num_features, 2)
    assert torch.equal(inputs["image_features"][:, :kept], features[:, :kept])
    assert inputs["image_features"].shape == (2, num_features, 4) and not inputs["image_features"][:, 2:].any()
    assert not inputs["block_ids"].any() and inputs["position_offset"].tolist() == [[0], [0]]
    positions = [[0, 1, 2, 3, 0, 0], [0, 1, 2, 3, 4, 0]]
    assert all(inputs["axis_positions"][..., axis].tolist() == positions for axis in range(3))
    assert inputs["axis_positions"].shape == (2, 6, 3)


def test_given_positions_and_blocks_are_moved_with_their_tokens():
    positions = torch.arange(30).reshape(2, 5, 3)
    prompt = PromptFeatures(
        index_RT=feature_index(IDS, IMAGE),
        features_RFD=torch.zeros(2, 2, 4),
        blocks_RT=(IDS == IMAGE).long(),
        positions_RTA=positions,
        offset_R1=torch.tensor([[-1], [2]]),
        modality="audio",
    )
    graph = graph_of(audio_features=(2, 2, 4), block_ids=(2, 6), axis_positions=(2, 6, 3), position_offset=(2, 1))
    _, blocks, packed, offset = prompt.inputs(plan_packing(MASK, 0), 6, graph)
    assert blocks.tolist() == [[0, 1, 1, 0, 0, 0], [1, 0, 1, 0, 0, 0]] and offset.tolist() == [[-1], [2]]
    assert torch.equal(packed[0, :4], positions[0, 1:]) and torch.equal(packed[1, :5], positions[1])
    group = SimpleNamespace(take=lambda tensor: tensor[[1]])
    own = prompt.take(group)
    assert (
        own.modality == "audio" and own.offset_R1.tolist() == [[2]] and torch.equal(own.positions_RTA, positions[[1]])
    )
    plain = PromptFeatures(index_RT=IDS, features_RFD=torch.zeros(2, 2, 4)).take(group)
    assert plain.positions_RTA is None and plain.index_RT.tolist() == [IDS[1].tolist()]


def test_text_goes_on_behind_the_largest_position():
    """Qwen2-VL's rope_deltas: the largest position plus 1, less the number of tokens; padding counts for neither."""
    positions = torch.tensor(
        [[[99, 99, 99], [0, 0, 0], [1, 1, 3], [1, 2, 1]], [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]]]
    )
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    assert position_offset(positions, mask).tolist() == [[1], [0]]
    assert position_offset(torch.tensor([[[9, 9, 9], [0, 0, 0]]]), torch.tensor([[0, 1]])).tolist() == [[0]]


def test_graphs_with_features():
    assert reads_features(["input_ids", "audio_features"]) and not reads_features(["input_ids", "audio_index"])
