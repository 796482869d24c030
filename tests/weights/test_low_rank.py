"""Matrices of an adapter go to the ranks and rows of their module, on the core that has these."""

from __future__ import annotations

import torch

from optimum_neuron.weights import Shard, Shards, Split, even_split, low_rank_stack

NAMES, ONE_CORE = ("A", "B"), Shards()


def stack(tensors, sizes, targets, shards=ONE_CORE):
    return low_rank_stack("x", tensors, names=NAMES, sizes=sizes, targets=targets, max_rank=2, shards=shards)


def test_parts_of_a_fused_projection():
    tensors = {"x.A": torch.ones(3, 4, 5), "x.B": torch.ones(3, 7, 4)}
    fused = stack(tensors, {"q": 4, "k": 2, "v": 1}, ("q", "v"))
    (q_down, q_up), (v_down, v_up) = ((torch.randn(r, 5), torch.randn(n, r)) for r, n in ((2, 4), (1, 1)))
    fused.write(1, {"q": (q_down, q_up), "v": (v_down, v_up)})
    x, down, up = torch.randn(5), tensors["x.A"][1], tensors["x.B"][1]
    expected = torch.cat([q_up @ q_down @ x, torch.zeros(2), v_up @ v_down @ x])
    torch.testing.assert_close(up @ down @ x, expected)
    assert bool((tensors["x.A"][0] == 1).all() and (tensors["x.B"][2] == 1).all()), "other indices stay"
    fused.write(1, {})
    assert not tensors["x.A"][1].any() and not tensors["x.B"][1].any()


def test_divided_outputs_and_inputs():
    """Two cores, each with ranges of a tensor that packs two; the second one has zeros for a missing row."""
    packed = Split(size=5, parts=(((0, 2), (3, 1)), ((2, 1), (4, 1), (-1, 1))))
    down, up = torch.randn(2, 4), torch.randn(5, 2)
    columns = {"x.A": torch.zeros(2, 2, 4), "x.B@0": torch.zeros(2, 3, 2), "x.B@1": torch.zeros(2, 3, 2)}
    stack(columns, {"m": 5}, ("m",), Shards(2, {"x.B": Shard(1, (packed,))})).write(1, {"m": (down, up)})
    assert torch.equal(columns["x.A"][1], down)
    assert torch.equal(columns["x.B@0"][1], up[[0, 1, 3]])
    assert torch.equal(columns["x.B@1"][1], torch.cat([up[[2, 4]], torch.zeros(1, 2)]))

    rows = {"x.B": torch.zeros(2, 5, 2), "x.A@0": torch.zeros(2, 2, 2), "x.A@1": torch.zeros(2, 2, 2)}
    stack(rows, {"m": 5}, ("m",), Shards(2, {"x.A": Shard(2, (even_split(4, 2),))})).write(1, {"m": (down, up)})
    assert torch.equal(torch.cat([rows["x.A@0"][1], rows["x.A@1"][1]], 1), down) and torch.equal(rows["x.B"][1], up)


def test_problems_name_the_module():
    tensors = {"x.A": torch.zeros(2, 2, 5), "x.B": torch.zeros(2, 4, 2)}
    fused, good = stack(tensors, {"q": 3, "k": 1}, ("q",)), (torch.zeros(1, 5), torch.zeros(3, 1))
    assert list(fused.problems({"q": good, "another": good})) == []
    (problem,) = stack(tensors, {"q": 4}, ("q",)).problems({"q": (torch.zeros(1, 6), torch.zeros(4, 1))})
    assert problem == "q has 4 x 6 elements, compiled for 4 x 5"
