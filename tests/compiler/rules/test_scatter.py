"""Plain writes take any dtype; combining writes do not take integers."""

import pytest
import torch

ROWS = torch.tensor([0, 2])


def add_rows(x, y):
    return x.index_add(0, ROWS, y)


def accumulate(x, y):
    return x.index_put((ROWS,), y, accumulate=True)


def scatter_add(x, y):
    return x.scatter_add(0, ROWS[:, None].expand(2, 4), y)


def tensors(dtype):
    return torch.ones(4, 4, dtype=dtype), torch.ones(2, 4, dtype=dtype)


@pytest.mark.parametrize("function", [add_rows, accumulate, scatter_add])
class TestCombiningWrites:
    def test_floats_are_accepted(self, check, function):
        assert not check(function, *tensors(torch.bfloat16)).refused

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_integers_are_refused(self, check, function, dtype):
        (refused,) = check(function, *tensors(dtype)).refused
        assert refused.code == "NCC_EVRF060"
        assert "--implicit-integer-downcast=scatter" in refused.remedy


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
def test_plain_writes_take_any_dtype(check, function, dtype):
    assert not check(function, *tensors(dtype)).refused


@pytest.mark.parametrize(
    ("dtype", "codes"), [(torch.float32, []), (torch.int32, ["NCC_EVRF016"]), (torch.bool, ["NCC_EVRF016"])]
)
def test_scatter_reduce(check, dtype, codes):
    def reduce(x, y):
        return x.scatter_reduce(0, ROWS[:, None].expand(2, 4), y, reduce="amax")

    assert [r.code for r in check(reduce, *tensors(dtype)).refused] == codes


@pytest.mark.parametrize("write", ["index_copy_", "index_put_", "slice", "copy_"])
def test_writes_into_a_cache_in_place_are_accepted(check, write):
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
def test_known_positions_past_the_end_are_refused(check, write):
    def refused(largest):
        return check(lambda x, s: write(x, torch.arange(largest + 1), s), torch.zeros(3, 4), torch.ones(largest + 1, 4))

    assert [r.code for r in refused(3).refused] == ["NCC_EVRF031"]
    assert not refused(2).refused
