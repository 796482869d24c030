"""Work is counted by hand here, and the bound is work over published rates."""

import json

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from optimum_neuron.device.dynamo.estimate import estimate, peak_tflops
from optimum_neuron.hardware import resolve_target
from optimum_neuron.simulator.work import flops_by_dtype
from tests.device.dynamo.conftest import compiled

INF2 = resolve_target("inf2", environ={}).value


def graph(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def test_products_are_counted_by_dtype_and_rest_is_not():
    def work(x, y):
        return (x @ y).relu(), x.bfloat16() @ y.bfloat16()

    result = flops_by_dtype(graph(work, torch.zeros(2, 3), torch.zeros(3, 5)))
    assert result == {"float32": 2 * 2 * 3 * 5, "bfloat16": 2 * 2 * 3 * 5}


def test_large_matmul_is_compute_bound_and_small_one_memory_bound():
    large = estimate(graph(torch.mm, *[torch.zeros(2048, 2048, dtype=torch.bfloat16)] * 2), INF2)
    assert large.least_us == large.compute_us == pytest.approx(2 * 2048**3 / (peak_tflops(INF2, "bfloat16") * 1e6))
    small = estimate(graph(torch.mm, torch.zeros(1, 4), torch.zeros(4, 8)), INF2)
    assert small.size_bytes == 4 * (4 + 32 + 8)
    assert small.least_us == small.memory_us == pytest.approx(1e6 * small.size_bytes / INF2.hbm_bytes_per_s_per_core())


def test_result_that_aliases_input_moves_once():
    assert estimate(graph(lambda x: (x, x + 1), torch.zeros(8)), INF2).size_bytes == 2 * 32


def test_estimate_is_labelled_simulated_with_assumptions():
    data = estimate(graph(torch.mm, torch.zeros(1, 4), torch.zeros(4, 8)), INF2).to_dict()
    assert data["simulated"] and data["target"] == "inf2" and "roofline" in data["assumptions"]
    assert json.loads(json.dumps(data)) == data


def test_empty_tensors_and_sums_of_rows_have_little_work():
    table, rows, bags = torch.ones(50, 4), torch.tensor([1, 2, 4]), torch.tensor([0, 2])
    sums = compiled(torch.nn.functional.embedding_bag)(*(value.to("neuron") for value in (rows, table, bags)))
    assert sums.tolist() == torch.nn.functional.embedding_bag(rows, table, bags).tolist()
    empty = compiled(torch.matmul)(torch.ones(0, 4, device="neuron"), torch.ones(4, 3, device="neuron"))
    assert empty.shape == (0, 3)
    assert [graph.estimate.num_flops for graph in torch.neuron.compile_report().graphs][-1] in ({}, {"float32": 0})
