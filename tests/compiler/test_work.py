"""Arithmetic of single calls; whole models are compared with torch's counter in `test_check.py`."""

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler import work_of
from optimum_neuron.compiler.rules import OpCall, find_rule, known_ops
from optimum_neuron.compiler.work import MOVES, PRODUCTS, SCATTER


def works(function, *inputs):
    """Work of every call of a function; bookkeeping is left out."""

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    graph = torch.export.export(Module(), inputs, strict=False).graph
    calls = [OpCall.from_node(node) for node in graph.nodes if node.op == "call_function"]
    counted = [work_of(call) for call in calls if not call.op.startswith(("python.", "aten._assert", "aten.sym_"))]
    return [(work.flops, work.counted) for work in counted]


A, B, QUERY, KEY = torch.rand(4, 8), torch.rand(8, 16), torch.rand(2, 4, 3, 8), torch.rand(2, 2, 5, 8)
BYTES = torch.ones(32, 32, dtype=torch.int8)


@pytest.mark.parametrize(
    ("function", "inputs", "flops"),
    [
        (torch.matmul, (A, B), 2 * 4 * 8 * 16),
        (torch.mv, (A, B[:, 0]), 2 * 4 * 8),
        (torch.dot, (B[:, 0], B[:, 1]), 2 * 8),
        (torch.addmv, (A[:, 0], A, B[:, 0]), 2 * 4 * 8),
        (torch.addbmm, (torch.rand(4, 16), A.expand(3, 4, 8), B.expand(3, 8, 16)), 2 * 3 * 4 * 8 * 16),
        (torch._int_mm, (BYTES, BYTES), 2 * 32**3),
        (F.conv2d, (torch.rand(1, 3, 8, 8), torch.rand(4, 3, 3, 3)), 2 * 4 * 6 * 6 * 3 * 9),
        (F.conv_transpose2d, (torch.rand(1, 3, 8, 8), torch.rand(3, 4, 3, 3)), 2 * 3 * 8 * 8 * 4 * 9),
        (
            lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
            (QUERY, KEY),
            2 * (2 * 2 * 4 * 3 * 5 * 8),
        ),
    ],
    ids=["matmul", "mv", "dot", "addmv", "addbmm", "int_mm", "conv2d", "conv_transpose2d", "attention"],
)
def test_multiply_add_counts_two_flops(function, inputs, flops):
    assert works(function, *inputs) == [(flops, "products")]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [(torch.add, (A, A)), (torch.exp, (A,)), (lambda a: a.sum(), (A,)), (lambda a: a.sort().values, (A,))],
    ids=["add", "exp", "sum", "sort"],
)
def test_elementwise_operator_counts_one_per_element(function, inputs):
    assert works(function, *inputs) == [(32, "elements")]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a: a.transpose(0, 1), (A,)),
        (lambda a: torch.cat([a, a]), (A,)),
        (lambda a: a.to(torch.bfloat16), (A,)),
        (F.embedding, (torch.ones(3, dtype=torch.int64), A)),
        (lambda a, i: a.index_put([i], a[:1]), (A, torch.ones(1, dtype=torch.int64))),
    ],
    ids=["transpose", "cat", "cast", "embedding", "write"],
)
def test_data_movement_has_no_flops(function, inputs):
    assert {counted for _, counted in works(function, *inputs)} == {"none"}


def test_accumulating_write_has_flops():
    add = works(lambda a, i: a.index_put([i], a[:1], accumulate=True), A, torch.ones(1, dtype=torch.int64))
    assert (32, "elements") in add


def test_operator_without_rule_counts_its_decomposition():
    assert find_rule("aten.addr") is None
    ((flops, counted),) = works(torch.addr, A, A[:, 0], A[0])
    assert counted == "elements" and flops >= 32


def test_unknown_size_is_not_counted():
    assert (0, "unknown") in works(lambda a: a.nonzero(), A)


def test_every_named_rule_exists():
    known = {rule.name for op in known_ops() if (rule := find_rule(op)) is not None}
    assert {*PRODUCTS, *MOVES, SCATTER} <= known
    assert not set(PRODUCTS) & set(MOVES)
