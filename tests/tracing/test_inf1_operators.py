"""Operators of Inf1 with a published condition, those that never run there, and LSTMs of packed sequences."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import inf1
from optimum_neuron.tracing.script import neuron_models

CLOSE = {"rtol": 2e-2, "atol": 2e-2}
"""bfloat16 has 8 bits of precision."""
X = torch.rand(4, 6)

pytestmark = pytest.mark.usefixtures("inf1_machine")


def norm(order: float | str | None) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.ops.aten.norm(x * 2, order)


class PackedLstm(nn.Module):
    def __init__(self, padding_value: float = 0.0, **options: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 7, num_layers=2, **options)
        self.batch_first, self.padding_value = options.get("batch_first", False), padding_value
        self.eval()

    def states(self, packed: nn.utils.rnn.PackedSequence, given: tuple[torch.Tensor, ...]) -> Any:
        return given or None

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, self.batch_first)
        result, (h, c) = self.lstm(packed, self.states(packed, given))
        padded = nn.utils.rnn.pad_packed_sequence(result, self.batch_first, self.padding_value, total_length=5)
        return padded[0], h, c


class FromPackedData(PackedLstm):
    def states(self, packed: nn.utils.rnn.PackedSequence, given: tuple[torch.Tensor, ...]) -> Any:
        state = packed.data.mean().expand(2, 2, 7)
        return state, state


LENGTHS = torch.tensor([5, 3])
ROWS = (torch.rand(5, 2, 3), torch.tensor([5, 5]))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("model", "inputs", "unsupported"),
    [
        *((norm(order), X, {}) for order in (1, 2, math.inf)),
        (norm(3), X, {"aten::norm": 1}),
        (lambda x: torch.where(x > 0, x, -x), X, {}),
        (lambda x: torch.where(x > 0)[0], X, {"aten::where": 1}),
        (lambda x: F.one_hot(x, 9) * 2, torch.tensor([1, 2]), {}),
        (lambda x: F.one_hot(x) * 2, torch.tensor([1, 2]), {"aten::one_hot": 1}),
        (lambda x: F.max_pool3d(x, 2, return_indices=True)[0], torch.rand(1, 1, 4, 4, 4), {}),
        (
            lambda x: F.max_pool3d(x, 2, return_indices=True),
            X.view(1, 1, 2, 3, 4),
            {"aten::max_pool3d_with_indices": 1},
        ),
        (lambda x: torch.view_as_real(torch.view_as_complex(x) * 2), X.view(3, 4, 2), {"aten::mul": 1}),
        (PackedLstm(), ROWS, {}),
        (PackedLstm(), (*ROWS, torch.rand(2, 2, 7), torch.rand(2, 2, 7)), {}),
        (PackedLstm(proj_size=2), ROWS, {"aten::lstm": 1}),
        (FromPackedData(), ROWS, {"aten::lstm": 1}),
    ],
)
def test_published_conditions_of_operators(model, inputs, unsupported):
    """The list of NeuronCore-v1 (PyTorch Neuron operator support), with what it says beside an operator."""
    found = inf1.analyze_model(model, inputs)["unsupported_operators"]
    found = {
        name: count for name, count in found.items() if name not in ("aten::view_as_real", "aten::view_as_complex")
    }
    assert found == unsupported


@pytest.mark.full(days=2)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True, "padding_value": -3.0}])
def test_packed_lstm_follows_the_lengths(options):
    model = PackedLstm(**options)
    x = torch.rand(2, 5, 3) if options else torch.rand(5, 2, 3)
    given = (torch.rand(4, 2, 7), torch.rand(4, 2, 7)) if options else ()
    traced = inf1.trace(model, (x, torch.tensor([5, 5]), *given))
    for mine, theirs in zip(traced(x, LENGTHS, *given), model(x, LENGTHS, *given), strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_packed_result_stays_on_the_cpu():
    class Returned(PackedLstm):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return self.lstm(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    model, (x, _) = Returned(), ROWS
    traced = inf1.trace(model, ROWS, allow_no_ops_on_neuron=True)
    assert torch.equal(traced(x, LENGTHS), model(x, LENGTHS))


def test_operators_of_other_libraries_run_on_the_cpu():
    with torch.library._scoped_library("inf1_test", "FRAGMENT") as library:
        library.define("halves(Tensor x) -> (Tensor, Tensor)")
        library.impl("halves", lambda x: (x[:, :3].clone(), x[:, 3:].clone()), "CPU")

        def model(x: torch.Tensor) -> torch.Tensor:
            left, right = torch.ops.inf1_test.halves(torch.relu(x) * 2)
            return torch.tanh(left * right)

        traced = inf1.trace(model, X, minimum_segment_size=1)
        assert len(neuron_models(traced)) == 2
        torch.testing.assert_close(traced(X), model(X), **CLOSE)


class Sign(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if bool(x.sum() > 0) else -x


def test_a_scripted_child_with_control_flow_runs_on_the_cpu():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sign = torch.jit.script(Sign())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.sign(x) * 2)

    traced = inf1.trace(Outer(), X)
    for x in (X, -X):
        torch.testing.assert_close(traced(x), Outer()(x), **CLOSE)
        assert traced(x).min() >= 0


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0.75

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fmod(torch.relu(x) * self.step, self.step) * self.step + 1


def test_attributes_of_a_script_are_constants():
    with pytest.warns(UserWarning, match="already a ScriptModule"):
        traced = inf1.trace(torch.jit.script(Wrapped()), X)
    assert len(neuron_models(traced)) == 2
    torch.testing.assert_close(traced(X), Wrapped()(X), **CLOSE)


def test_inputs_may_be_nested():
    def model(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.relu(pair[0]) + pair[1] * 2

    traced = inf1.trace(model, ((X, X + 1),))
    torch.testing.assert_close(traced((X, X - 1)), model((X, X - 1)), **CLOSE)


def test_sizes_of_parts_of_what_a_core_makes_do_not_split_a_segment():
    def model(x: torch.Tensor) -> torch.Tensor:
        left, right = (torch.relu(x) * 2).chunk(2, 1)
        return left * right + torch.linspace(0.0, 1.0, left.size(1))

    traced = inf1.trace(model, X)
    assert len(neuron_models(traced)) == 1
    torch.testing.assert_close(traced(X), model(X), **CLOSE)


def test_a_weight_of_two_parts_of_the_cpu_is_stored_once():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(6, 6), nn.Linear(6, 6)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table((self.head(self.table(ids)) * 2).argmax(-1))

    model, ids = Twice(), torch.tensor([1, 5, 0])
    traced = inf1.trace(model, ids)
    assert [name for name, _ in traced.named_buffers() if "table" in name] == ["weight_table_weight"]
    torch.testing.assert_close(traced(ids), model(ids))


def test_a_segment_that_cannot_be_compiled_leaves_the_others():
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(torch.relu(x) * 2 + 1)[0].double() * 3 + 1

    traced = inf1.trace(model, X)
    assert len(neuron_models(traced)) == 1
    torch.testing.assert_close(traced(X), model(X), **CLOSE)


def test_division_alone_needs_no_machine_and_runs_on_the_cpu(monkeypatch):
    assert inf1.is_available()
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    assert not inf1.is_available()
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    traced = inf1.trace(model, X, skip_compiler=True)
    with pytest.raises(ConfigError):
        neuron_models(traced)
    assert torch.equal(traced(X), model(X))


def test_log_says_when_a_pipeline_has_fewer_operators_than_cores(caplog):
    caplog.set_level(logging.INFO, "Neuron")
    flags = "--neuroncore-pipeline-cores 4"
    inf1.trace(nn.Linear(6, 4), X, minimum_segment_size=1, compiler_args=flags).close()
    assert "too few operators for 4 cores of a pipeline, and takes 1" in caplog.text
