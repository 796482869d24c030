"""Tensors of a program whose copies are forgotten once they are in another layout."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from safetensors.torch import save_file

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.weights import Checkpoint, Shard, Shards, bind_weights, even_split, unit_split


@pytest.fixture
def checkpoint(tmp_path):
    save_file({name: torch.randn(4, 6) for name in "abc"}, tmp_path / "model.safetensors")
    return Checkpoint.open(tmp_path)


def spec(*shape):
    return TensorSpec(shape=shape, dtype="float32")


def test_a_copy_is_freed_and_made_again(checkpoint):
    tensors = bind_weights({"ac": spec(8, 6), "b": spec(4, 6)}, {"ac": ("a", "c"), "b": ("b",)}, checkpoint).tensors
    before, freed = tensors["ac"].clone(), weakref.ref(tensors["ac"])
    dropped, checkpoint.drop_pages = [], lambda names: dropped.append(names)
    tensors.forget("ac")
    gc.collect()
    assert freed() is None and not dropped
    assert torch.equal(tensors["ac"], before) and tensors["ac"] is tensors["ac"] and dropped == [("a", "c")]
    mapped = tensors["b"]
    tensors.forget("b")
    assert tensors["b"] is mapped
    assert torch.equal(mapped, checkpoint.join(["b"])[0]), "a mapped tensor is read from its file again"


def test_parts_of_cores_are_made_again_and_others_can_be_added(checkpoint):
    shards = Shards(2, {"w": Shard(1, (even_split(6, 2),))})
    tensors = bind_weights({"w": spec(4, 3)}, {"w": ("a",)}, checkpoint, shards).tensors | {"room": torch.zeros(2)}
    whole = checkpoint.join(["a"])[0]
    for rank in range(2):
        tensors.forget(f"w@{rank}")
    assert torch.equal(torch.cat([tensors["w@0"], tensors["w@1"]], 1), whole)
    assert sorted(tensors) == ["room", "w@0", "w@1"] and tensors["room"].sum() == 0
    tensors.forget("room")
    assert len(tensors["room"]) == 2, "zeros that were written are in no checkpoint"


def test_padding_of_several_weights_is_one_tensor(checkpoint):
    """The last of three cores has no rows of either weight: its zeros are copied once, and counted once."""
    divided = Shard(0, (unit_split(2, 2, [[0], [1], [-1]]),))
    shards = Shards(3, {"x": divided, "y": divided})
    bound = bind_weights({"x": spec(2, 6), "y": spec(2, 6)}, {"x": ("a",), "y": ("b",)}, checkpoint, shards)
    tensors, size_bytes = bound.tensors, spec(2, 6).size_bytes
    assert tensors["x@2"] is tensors["y@2"] and not tensors["x@2"].any()
    assert (bound.mapped_bytes, bound.copied_bytes) == (4 * size_bytes, size_bytes)
    assert torch.equal(torch.cat([tensors["y@0"], tensors["y@1"]]), checkpoint.join(["b"])[0])
    tensors.forget("x@2")
    assert not tensors["x@2"].any() and tensors["x@2"].shape == (2, 6)


def test_room_for_what_is_written_later_is_zeros_on_every_core(checkpoint):
    shards = Shards(2, {"own": Shard(0, (even_split(8, 2),))})
    bound = bind_weights({"own": spec(4, 2), "all": spec(3)}, {"own": (), "all": ()}, checkpoint, shards)
    assert {name: tuple(one.shape) for name, one in bound.tensors.items()} == {
        **{"own@0": (4, 2), "own@1": (4, 2)},
        "all": (3,),
    }
    bound.tensors["own@0"].fill_(1)
    assert not bound.tensors["own@1"].any() and (bound.mapped_bytes, bound.copied_bytes) == (0, 0)
