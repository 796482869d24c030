"""Known positions must be in range; plain writes take any dtype, combining ones no integers."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.base.core import Verdict


def embedding(length, offset=0):
    """Reads rows at counted positions."""
    return lambda table: F.embedding((torch.arange(length) + offset).unsqueeze(0).expand(1, length), table)


def test_error_names_position_and_size(ruling):
    result = ruling("aten.embedding", embedding(7, 2), torch.randn(8, 4))
    assert result.code == "NCC_EVRF056" and "position 8 " in result.reason and "size 8" in result.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: x[i[0]],
        lambda x, i: F.embedding(i, x),
        lambda x, i: F.one_hot(i, 8).float() @ x,
    ],
    ids=["gather", "index", "embedding", "one_hot"],
)
def test_dynamic_positions_are_not_checked(check, function):
    assert not check(function, torch.randn(8, 4), torch.zeros(8, 2, dtype=torch.int64)).refused


class Positions(torch.nn.Module):
    """Reads rows at positions that a buffer holds."""

    def __init__(self, positions, persistent=False):
        super().__init__()
        self.register_buffer("positions", torch.tensor(positions), persistent=persistent)

    def forward(self, x):
        return x[self.positions]


READS = {
    "embedding": embedding(4),
    "embedding with an offset": embedding(2, 2),
    "steps": lambda x: x.index_select(0, torch.arange(0, 5, 3)),
    "range": lambda x: x[torch.arange(10)],
    "range beside a write": lambda x: x.clone().relu_()[torch.arange(10)],
    "list": lambda x: x[:, [0, 4]],
    "from the end": lambda x: x[torch.tensor([-4])],
    "computed": lambda x: x[torch.arange(4) * 3 // 2 - 1 + torch.tensor([0, 0, 0, 1])],
    "gather": lambda x: x.gather(1, torch.full((3, 1), 4)),
    "select": lambda x: x.index_select(1, torch.tensor([-1])),
    "32 bits": lambda x: x.index_select(0, torch.tensor([3], dtype=torch.int32)),
    "along": lambda x: x.take_along_dim(torch.tensor([[12]]), None),
    "buffer": Positions([0, 3]),
    "gather before the first": lambda x: x.gather(0, torch.tensor([[-1]])),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_known_positions_out_of_range_are_refused(check, read):
    assert [r.code for r in check(read, torch.randn(3, 4)).refused] == ["NCC_EVRF056"]


FITS = {
    "embedding": embedding(3),
    "embedding with an offset": embedding(1, 2),
    "steps": lambda x: x.index_select(0, torch.arange(0, 3, 2)),
    "range": lambda x: x[torch.arange(3)],
    "from the end": lambda x: x[torch.tensor([-3, 2])],
    "mask and range": lambda x: x[:, None][torch.tensor([1]), None, torch.tensor([0])],
    "buffer": Positions([0, 2]),
    "weight": Positions([0, 3], persistent=True),
    "written": lambda x: x[torch.full((2,), 9).fill_(1)],
    "none": lambda x: x.index_select(0, torch.tensor([], dtype=torch.int64)),
    "random": lambda x: x[torch.randint(5, 6, (2,))],
}


@pytest.mark.parametrize("read", FITS.values(), ids=FITS)
def test_known_positions_in_range_and_unknown_ones_are_accepted(check, read):
    assert not check(read, torch.randn(3, 4)).refused


UNKNOWN = {
    "sum of a list of unknown size": lambda x: x.index_select(0, torch.nonzero(torch.arange(3)).sum(0)),
    "number that is read": lambda x: x.index_select(0, torch.full((1,), torch.arange(3).sum().item())),
}


@pytest.mark.parametrize("read", UNKNOWN.values(), ids=UNKNOWN)
def test_positions_made_of_refused_results_are_unknown(ruling, read):
    assert ruling("aten.index_select", read, torch.randn(3, 4)).verdict is Verdict.NATIVE


def test_constant_written_through_view_is_unknown(check):
    def written(x):
        positions = torch.full((2, 1), 9)
        positions.view(-1).fill_(1)
        return x[positions + 0]

    assert not check(written, torch.randn(3, 4)).refused


ROWS = torch.tensor([0, 2])


def add_rows(x, y):
    return x.index_add(0, ROWS, y)


def accumulate(x, y):
    return x.index_put((ROWS,), y, accumulate=True)


def scatter_add(x, y):
    return x.scatter_add(0, ROWS[:, None].expand(2, 4), y)


def tensors(dtype):
    return torch.ones(4, 4, dtype=dtype), torch.ones(2, 4, dtype=dtype)


def scatter_multiply(x, y):
    return x.scatter(0, ROWS[:, None].expand(2, 4), y, reduce="multiply")


@pytest.mark.parametrize("function", [add_rows, accumulate, scatter_add, scatter_multiply])
class TestCombiningWrites:
    def test_floats_are_accepted(self, check, function):
        assert not check(function, *tensors(torch.bfloat16)).refused

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_integers_are_refused(self, check, function, dtype):
        (error,) = check(function, *tensors(dtype)).refused
        assert error.code == "NCC_EVRF060" and "--implicit-integer-downcast=scatter" in error.remedy


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.index_copy(0, ROWS, y),
        lambda x, y: x.index_put((ROWS,), y),
        lambda x, y: x.scatter(0, ROWS[:, None].expand(2, 4), y),
        lambda x, y: x.slice_scatter(y, 0, 1, 3),
    ],
    ids=["index_copy", "index_put", "scatter", "slice_scatter"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_plain_writes_accept_any_dtype(check, function, dtype):
    assert not check(function, *tensors(dtype)).refused


@pytest.mark.parametrize(
    ("dtype", "codes"), [(torch.float32, []), (torch.int32, ["NCC_EVRF016"]), (torch.bool, ["NCC_EVRF016"])]
)
def test_scatter_reduce(check, dtype, codes):
    def reduce(x, y):
        return x.scatter_reduce(0, ROWS[:, None].expand(2, 4), y, reduce="amax")

    assert [r.code for r in check(reduce, *tensors(dtype)).refused] == codes


@pytest.mark.parametrize("write", ["index_copy_", "index_put_", "slice", "copy_"])
def test_writes_into_cache_in_place_are_accepted(check, write):
    def update(cache, new, positions):
        if write == "index_copy_":
            cache.index_copy_(2, positions, new)
        elif write == "index_put_":
            cache[:, :, positions] = new
        elif write == "slice":
            cache[:, :, 1:3] = new
        else:
            cache.narrow(2, 1, 2).copy_(new)
        return cache.sum()

    report = check(update, torch.zeros(1, 2, 8, 4), torch.ones(1, 2, 2, 4), torch.tensor([1, 2]))
    assert not report.refused
    assert any(r.rule in ("write", "scatter") for r in report.rulings)


WRITES = {
    "copy": lambda x, i, s: x.index_copy(0, i, s),
    "fill": lambda x, i, s: x.index_fill(0, i, 1.0),
    "add": lambda x, i, s: x.index_add(0, i, s),
    "put": lambda x, i, s: x.index_put((i,), s),
    "scatter": lambda x, i, s: x.scatter(0, i[:, None], s),
    "reduce": lambda x, i, s: x.scatter_reduce(0, i[:, None], s, "amax"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_known_positions_past_end_are_refused(check, write):
    def refused(largest):
        return check(lambda x, s: write(x, torch.arange(largest + 1), s), torch.zeros(3, 4), torch.ones(largest + 1, 4))

    assert [r.code for r in refused(3).refused] == ["NCC_EVRF031"] and not refused(2).refused


def test_a_tensor_without_dimensions_has_one_position(ruling):
    first, second = (
        ruling("aten.index_select", lambda x, i=i: x.index_select(0, torch.tensor([i])), torch.tensor(3.0))
        for i in (0, 1)
    )
    assert first.verdict is not Verdict.UNSUPPORTED
    assert second.verdict is Verdict.UNSUPPORTED and "size 1" in second.reason
