"""Other weights without compiling."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from optimum_neuron.errors import WeightsError
from optimum_neuron.tracing import replace_weights, trace
from tests.raising import raises
from tests.tracing.conftest import FAST, Convolutions, Counter

X = torch.rand(5, 12)


@pytest.fixture
def separate(mlp):
    return trace(mlp, X, compiler_args=FAST, inline_weights_to_neff=False)


def other_of(module):
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    return other


@pytest.mark.parametrize("as_dict", [True, False])
def test_weights_of_module_or_state_dict(separate, mlp, as_dict, tmp_path):
    other = other_of(mlp)
    assert replace_weights(separate, other.state_dict() if as_dict else other) is None
    torch.testing.assert_close(separate(X), other(X))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert separate(X).unique().numel() > 1, "the new weights are copies"
    torch.jit.save(separate, tmp_path / "m.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "m.pt")(X), separate(X))


def test_buffers_are_replaced():
    network, image = Convolutions(), torch.rand(1, 1, 8, 8)
    model = trace(network, image, compiler_args=FAST, inline_weights_to_neff=False)
    other = other_of(network)
    other.norm.running_mean.fill_(0.5)
    replace_weights(model, other)
    torch.testing.assert_close(model(image), other(image))


def test_state_keeps_its_first_value():
    module, x = Counter(), torch.rand(2, 4)
    options = {"compiler_args": FAST, "inline_weights_to_neff": False}
    model = trace(module, x, input_output_aliases={module.total: 1}, **options)
    first = model(x)
    replace_weights(model, {"scale.weight": module.scale.weight * 2, "scale.bias": module.scale.bias * 2})
    torch.testing.assert_close(model(x), first * 2)


def test_inlined_weights_stay_with_a_warning(mlp):
    model = trace(mlp, X, compiler_args=FAST)
    with pytest.warns(UserWarning, match="inside its NEFF.*inline_weights_to_neff=False"):
        replace_weights(model, other_of(mlp))
    torch.testing.assert_close(model(X), mlp(X))


def test_all_misfit_weights_are_named_and_nothing_changes(separate, mlp):
    state = mlp.state_dict()
    del state["fc1.bias"]
    state["fc2.weight"] = torch.rand(3, 3)
    with raises(WeightsError) as error:
        replace_weights(separate, state)
    assert {problem.split()[0] for problem in error.value.details["problems"]} == {"fc1.bias", "fc2.weight"}
    torch.testing.assert_close(separate(X), mlp(X))


def test_tied_weights_are_stored_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    tied, tokens = Tied(), torch.tensor([[1, 2]])
    model = trace(tied, tokens, compiler_args=FAST, inline_weights_to_neff=False)
    torch.testing.assert_close(model(tokens), tied(tokens))
    replace_weights(model, other_of(tied))
    torch.testing.assert_close(model(tokens), other_of(tied)(tokens))
