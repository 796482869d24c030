"""Captured operators have the lines that a whole stack would give them."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

from optimum_neuron.compiler.frames import source_lines
from optimum_neuron.compiler.rules import source_line


def halved(x):
    return torch.nn.functional.gelu(x) / 2


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        y[:, 0] += 1
        return halved(y) + torch.ops.aten.relu(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Inner(), nn.LayerNorm(4), nn.Softmax(dim=-1))

    def forward(self, x):
        *parts, last = self.layers(x).split(1)
        return torch.cat([*parts, last @ x.mT]) if x.dim() > 2 else torch.stack(parts).sum(0) * last


class Scanned(nn.Module):
    def forward(self, x):
        return scan(lambda carry, row: (carry + row, carry * 2), x[0], x)


def lines(module):
    exported = torch.export.export(module, (torch.ones(3, 4),), strict=False)
    found = {node.name: source_line(node) or "" for node in exported.graph.nodes}
    return {name: line.partition("<eval_with_key>")[0] for name, line in found.items()}  # torch numbers its modules


@pytest.mark.parametrize("module", [Outer(), nn.Sequential(nn.Linear(4, 4)), Scanned()], ids=["own", "torch", "region"])
def test_lines_are_those_of_whole_stack(module):
    expected = lines(module)
    with source_lines():
        assert lines(module) == expected


def test_only_innermost_frame_is_kept():
    with source_lines():
        exported = torch.export.export(Outer(), (torch.ones(3, 4),), strict=False)
    stacks = [node.meta["stack_trace"] for node in exported.graph.nodes if node.op == "call_function"]
    assert stacks and all(stack.count("File ") == 1 for stack in stacks)
