"""The work of one eager operator: FLOPs, reads, and writes."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.device.eager_work import work_of_operator

SDPA = "_scaled_dot_product_flash_attention_for_cpu"


def tensor(*size, dtype="float32"):
    strides = [1]
    for length in reversed(size[1:]):
        strides.insert(0, strides[0] * length)
    return {"dtype": dtype, "size": list(size), "stride": strides if size else []}


def work(name, *arguments, overload=""):
    return work_of_operator(json.dumps([f"aten::{name}", overload, arguments]))


@pytest.mark.parametrize(
    ("operator", "flops", "bytes_read", "bytes_written"),
    [
        (work("mm", tensor(4, 8), tensor(8, 2)), 2 * 4 * 8 * 2, 4 * (32 + 16), 4 * 8),
        (work("mm", tensor(4, 8), tensor(8, 2), tensor(4, 2), overload="out"), 2 * 4 * 8 * 2, 4 * (32 + 16), 4 * 8),
        (work("arange", 0, 10, 1, tensor(0, dtype="int64"), overload="start_out"), 0, 0, 80),
        (
            work(SDPA, *[tensor(1, 2, 16, 8)] * 3, 0.0, False, None, None),
            4 * 2 * 16 * 16 * 8,
            3 * 4 * 256,
            4 * (256 + 32),
        ),
        (work("add_", tensor(256), 1.0, 1, overload="Tensor"), 256, 1024, 1024),
        (work("zero_", tensor(256)), 0, 0, 1024),
        (work("copy_", tensor(256), tensor(256, dtype="float16"), False), 0, 512, 1024),
        (work("cat", [tensor(8), tensor(8)], 0), 0, 64, 64),
        (work("topk", tensor(64), 2, -1, True, True), 64, 256, 2 * 4 + 2 * 8),
        (work("native_layer_norm", tensor(4, 16), [16], None, None, 1.0), 64, 256, 4 * (64 + 4 + 4)),
    ],
)
def test_operations_and_bytes(operator, flops, bytes_read, bytes_written):
    assert (operator.total.flops, operator.total.weight_bytes, operator.total.result_bytes) == (
        flops,
        bytes_read,
        bytes_written,
    )
    assert operator.unknown == ()


def test_name_has_shapes():
    assert work("add", tensor(2, 3), tensor(3, dtype="bfloat16"), 1, overload="Tensor").name == (
        "add.Tensor float32[2,3] bfloat16[3]"
    )


def test_name_of_many_tensors_is_short():
    assert work("cat", [tensor(2)] * 3, 0).name == "cat 3xfloat32[2]"
    name = work("cat", [tensor(1 + rows, 2) for rows in range(20)], 0).name
    assert name.startswith("cat float32[1,2] float32[2,2]") and name.endswith("float32[6,2] and 14 more")


@pytest.mark.parametrize("name", ["_local_scalar_dense", "t_"])
def test_host_results_and_views_have_no_work(name):
    assert work(name, tensor(2, 2)) is None


@pytest.mark.parametrize(
    "kind", [["aten::nonzero", "", [tensor(4)]], ["mylib::double", "", [tensor(4)]], ["c10d::allreduce_", "", [None]]]
)
def test_uncountable_work_is_unknown(kind):
    result = work_of_operator(json.dumps(kind))
    assert result.unknown == (kind[0].replace("::", "."),) and result.total.num_unknown == 1
