"""Names of the weights and states of a layer that was not captured."""

import pytest

from optimum_neuron.base.core import Choice
from optimum_neuron.compiler.passes.stretch import _reindexed
from optimum_neuron.compiler.stacks import Stack

STACK = Stack(path="model.layers", num_layers=20, captured=Choice(value=2, reason="all are alike"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("weight:model.layers.1.up.weight", "weight:model.layers.7.up.weight"),
        ("weight:model.layers.10.up.weight", "weight:model.layers.10.up.weight"),
        ("weight:model.norm.1", "weight:model.norm.1"),
        ("state:keys.1", "state:keys.7"),
        ("state:keys.0", "state:keys.0"),
        ("state:keys.11", "state:keys.11"),
        ("const:table.1", "const:table.1"),
        ("tmp:1", "tmp:1"),
        ("input:x", "input:x"),
    ],
)
def test_only_what_the_captured_layer_owns_is_renamed(value, expected):
    assert _reindexed(value, 1, 7, STACK) == expected
