"""Weights of a program from tensors of a checkpoint; all misfits are reported together."""

from __future__ import annotations

import ctypes

import pytest
import torch
from safetensors.torch import save_file

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import Checkpoint, Shard, Shards, StateDict, bind_weights, first_split
from tests.raising import raises


def spec(*shape, dtype="float32"):
    return TensorSpec(shape=shape, dtype=dtype)


@pytest.fixture
def checkpoint(tmp_path):
    # The library sorts tensors by name (of one dtype), so a, b and c are neighbors and e is apart.
    tensors = {"a": torch.full((2, 4), 1.0), "b": torch.full((1, 4), 2.0), "c": torch.full((1, 4), 3.0)}
    tensors |= {"d": torch.randn(3), "e": torch.full((1, 4), 5.0)}
    save_file(tensors, tmp_path / "model.safetensors")
    return Checkpoint.open(tmp_path)


def mapped_range(checkpoint):
    buffer = next(iter(checkpoint._file_of.values()))._buffer
    start = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    return range(start, start + len(buffer))


def test_adjacent_tensors_are_mapped_and_others_copied(checkpoint):
    specs = {"abc": spec(4, 4), "alone": spec(3), "ae": spec(3, 4)}
    sources = {"abc": ("a", "b", "c"), "alone": ("d",), "ae": ("a", "e")}
    dropped, checkpoint.drop_pages = [], lambda names: dropped.append(names)
    bound = bind_weights(specs, sources, checkpoint)
    assert dropped == [("a", "e")] and len(bound.tensors) == 3
    assert bound.mapped_bytes == specs["abc"].size_bytes + specs["alone"].size_bytes
    assert bound.copied_bytes == specs["ae"].size_bytes
    assert bound.tensors["abc"][:, 0].tolist() == [1, 1, 2, 3] and bound.tensors["ae"][:, 0].tolist() == [1, 1, 5]
    inside = {name: tensor.data_ptr() in mapped_range(checkpoint) for name, tensor in bound.tensors.items()}
    assert inside == {"abc": True, "alone": True, "ae": False}


def test_only_required_weights_are_bound(checkpoint):
    sources = {"x": ("a",), "y": ("a",), "unused": ("nothing like it",)}
    bound = bind_weights({"x": spec(2, 4), "y": spec(2, 4)}, sources, checkpoint)
    assert list(bound.tensors) == ["x", "y"]
    assert bound.tensors["x"].data_ptr() == bound.tensors["y"].data_ptr()


def test_other_dtype_is_converted_and_counted_as_copy(checkpoint):
    bound = bind_weights({"x": spec(3, dtype="bfloat16")}, {"x": ("d",)}, checkpoint)
    assert bound.tensors["x"].dtype == torch.bfloat16 and (bound.mapped_bytes, bound.copied_bytes) == (0, 6)
    assert torch.equal(bound.tensors["x"], checkpoint.join(["d"])[0].to(torch.bfloat16))


def test_sources_of_several_dtypes_are_joined_in_programs(tmp_path):
    source = StateDict(tensors={"a": torch.ones(1, 2), "b": torch.ones(1, 2, dtype=torch.bfloat16)}, origin="memory")
    bound = bind_weights({"x": spec(2, 2, dtype="bfloat16")}, {"x": ("a", "b")}, source)
    assert bound.tensors["x"].dtype == torch.bfloat16 and bound.copied_bytes == 8


def test_cores_without_a_part_share_zeros(checkpoint):
    """The first of four cores has a bias; the others have the same zeros."""
    specs, shards = {"x": spec(3)}, Shards(4, {"x": Shard(0, (first_split(3, 4),))})
    bound = bind_weights(specs, {"x": ("d",)}, checkpoint, shards)
    assert (bound.mapped_bytes, bound.copied_bytes) == (12, 12)
    assert torch.equal(bound.tensors["x@0"], checkpoint.join(["d"])[0]) and not bound.tensors["x@1"].any()
    assert bound.tensors["x@2"].data_ptr() == bound.tensors["x@1"].data_ptr() != bound.tensors["x@0"].data_ptr()


def test_every_problem_is_listed_with_nearest_names():
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": torch.ones(4, 4),
        "model.layers.0.self_attn.key_proj.weight": torch.ones(2, 4),
        "model.layers.0.mlp.up_proj.weight": torch.ones(8, 5),
        "model.layers.0.mlp.gate_proj.weight": torch.ones(8, 4),
        "model.norm.weight": torch.ones(5),
        "scale": torch.tensor(1.0),
        "ids": torch.ones(4, dtype=torch.int64),
    }
    sources = {
        "qk": ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"),
        "gate_up": ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        "norm": ("model.norm.weight",),
        "head": ("completely_other",),
        "scales": ("scale", "scale"),
        "rows": ("model.norm.weight", "model.norm.weight"),
        "ids": ("ids",),
        "good": ("model.layers.0.mlp.gate_proj.weight",),
        "one": ("scale",),
    }
    specs = {"qk": spec(6, 4), "gate_up": spec(16, 4), "norm": spec(4), "head": spec(9, 4), "scales": spec(2)}
    specs |= {"rows": spec(9), "ids": spec(4), "good": spec(8, 4), "one": spec()}
    with pytest.raises(WeightsError) as excinfo:
        bind_weights(specs, sources, StateDict(tensors=tensors, origin="/models/tuned"))
    problems = excinfo.value.details["problems"]
    assert problems == [
        "model.layers.0.self_attn.k_proj.weight is missing, did you mean 'model.layers.0.self_attn.key_proj.weight'?",
        "model.layers.0.mlp.gate_proj.weight + model.layers.0.mlp.up_proj.weight has shape [8, 4] + [8, 5], "
        "compiled for [16, 4]",
        "model.norm.weight has shape [5], compiled for [4]",
        "completely_other is missing",
        "scale + scale has shape [] + [], compiled for [2]",
        "model.norm.weight + model.norm.weight has shape [5] + [5], compiled for [9]",
        "ids has int64, compiled for float32",
    ]
    message = str(excinfo.value)
    assert "/models/tuned" in message
    assert all(problem in message for problem in problems)


def test_long_list_is_cut_in_message_and_whole_in_details():
    specs = {f"w{index}": spec(1) for index in range(40)}
    sources = {name: (name,) for name in specs}
    with raises(WeightsError) as excinfo:
        bind_weights(specs, sources, StateDict(tensors={}, origin="memory"))
    assert len(excinfo.value.details["problems"]) == 40
    assert sum(problem in excinfo.value.message for problem in excinfo.value.details["problems"]) == 12
