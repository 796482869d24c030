"""Parts of checkpoint tensors for the cores of a group."""

import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.weights import Shard, Shards, even_split, first_split, joined_split, packed_split, unit_split

WEIGHT = torch.arange(60.0).reshape(10, 6)


def test_equal_parts_end_with_zeros():
    split = even_split(10, 4)
    parts = [split.part(WEIGHT, 0, rank) for rank in range(4)]
    assert {part.shape for part in parts} == {(3, 6)}
    joined = torch.cat(parts)
    assert torch.equal(joined[:10], WEIGHT) and not joined[10:].any()
    columns = [even_split(6, 4).part(WEIGHT.unflatten(0, (5, 2)), 2, rank) for rank in range(4)]
    assert torch.equal(torch.cat(columns, 2).flatten(0, 1), torch.nn.functional.pad(WEIGHT, (0, 2)))
    assert even_split(10, 4).parts == (((0, 3),), ((3, 3),), ((6, 3),), ((9, 1), (-1, 2)))
    assert even_split(6, 2, unit=2).parts == (((0, 4),), ((4, 2), (-1, 2)))


def test_part_of_rows_is_view():
    part = even_split(10, 2).part(WEIGHT, 0, 1)
    assert part.untyped_storage().data_ptr() == WEIGHT.untyped_storage().data_ptr()


def test_units_may_be_copied_and_padded():
    split = unit_split(5, 2, [[0, 1], [1, 2], [3, -1]])
    assert torch.equal(split.part(WEIGHT, 0, 1), WEIGHT[2:6]) and split.parts[1] == ((2, 4),)
    assert unit_split(4, 2, [[-1, -1, 1, 0, -1, 2, 3]]).parts == (((-1, 4), (2, 2), (0, 2), (-1, 2), (4, 4)),)
    last = split.part(WEIGHT, 0, 2)
    assert torch.equal(last[:2], WEIGHT[6:8]) and not last[2:].any()


def test_first_core_has_bias():
    split = first_split(10, 3)
    assert torch.equal(split.part(WEIGHT, 0, 0), WEIGHT)
    assert not split.part(WEIGHT, 0, 2).any() and len(split.parts) == 3


def test_parts_of_several_tensors_are_joined():
    shard = Shard(0, (even_split(10, 2), even_split(4, 2)))
    other = -torch.arange(24.0).reshape(4, 6)
    assert torch.equal(shard.part([WEIGHT, other], 1), torch.cat([WEIGHT[5:], other[2:]]))
    assert shard.whole(TensorSpec(shape=(7, 6), dtype="float32")).shape == (14, 6)


def test_tensors_behind_each_other_are_divided_one_by_one():
    split = joined_split([even_split(6, 2), even_split(4, 2)])
    assert torch.equal(split.part(WEIGHT, 0, 1), torch.cat([WEIGHT[3:6], WEIGHT[8:]]))
    assert split.size == 10
    assert joined_split([even_split(4, 2), even_split(3, 2)]).parts == (((0, 2), (4, 2)), ((2, 2), (6, 1), (-1, 1)))


def test_columns_are_contiguous():
    shard = Shard(1, (even_split(6, 2),))
    part = shard.part([WEIGHT], 1)
    assert part.is_contiguous() and torch.equal(part, WEIGHT[:, 3:])
    assert shard.whole(TensorSpec(shape=(10, 3), dtype="float32")).shape == (10, 6)
    two = Shard(1, (even_split(6, 2), even_split(6, 2)))
    assert two.whole(TensorSpec(shape=(20, 3), dtype="float32")).shape == (20, 6)


def test_plain_data_and_back():
    shards = Shards(3, {"a": Shard(0, (even_split(10, 3),)), "b": Shard(1, (even_split(10, 3),))})
    data = shards.to_dict()
    assert Shards.from_dict(data) == shards and len(data["splits"]) == 1


def test_packed_tensors_are_divided_one_by_one():
    """Rows 0 to 4 are gates, and 5 to 9 the rows that they multiply."""
    split = packed_split(10, 2, 5)
    assert all(torch.equal(split.part(WEIGHT, 0, rank), WEIGHT[[rank, rank + 5]]) for rank in range(5))


def test_the_same_weights_under_a_prefix():
    shard = Shard(0, (even_split(10, 2),))
    assert Shards(2, {"a.b": shard}).under("draft") == Shards(2, {"draft.a.b": shard})
