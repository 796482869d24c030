"""Dynamic batching: any batch size, and indivisible inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import dynamic_batch, trace
from optimum_neuron.tracing.script import neuron_models
from tests.raising import raises
from tests.tracing.conftest import FAST, Counter


@pytest.fixture
def traced_model(mlp):
    return dynamic_batch(trace(mlp, torch.rand(4, 12), compiler_args=FAST))


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
def test_any_number_of_rows_runs(traced_model, mlp, rows):
    x = torch.rand(rows, 12)
    torch.testing.assert_close(traced_model(x), mlp(x))


def test_model_is_changed_in_place_and_saved(mlp, tmp_path):
    model = trace(mlp, torch.rand(4, 12), compiler_args=FAST)
    assert dynamic_batch(model) is model
    torch.jit.save(model, tmp_path / "model.pt")
    x = torch.rand(6, 12)
    torch.testing.assert_close(torch.jit.load(tmp_path / "model.pt")(x), mlp(x))


def test_nested_inputs_and_outputs_are_split_and_joined():
    def function(x, named):
        return {"sum": x + named["y"]}, (x * 2,)

    inputs = (torch.rand(2, 3), {"y": torch.rand(2, 3)})
    model = dynamic_batch(trace(function, inputs, compiler_args=FAST))
    x, y = torch.rand(5, 3), torch.rand(5, 3)
    result, (twice,) = model(x, {"y": y})
    assert torch.equal(result["sum"], x + y) and torch.equal(twice, x * 2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.rand(5, 11), r"x is float32\[5, 11\], compiled for float32\[any, 12\]"),
        (torch.zeros(5, 12, dtype=torch.int64), r"x is int64\[5, 12\]"),
        (torch.rand(0, 12), "x has 0 rows"),
    ],
)
def test_other_differences_are_refused(traced_model, x, message):
    with pytest.raises(RuntimeError, match=f"ShapeError.*{message}"):
        traced_model(x)


def test_different_batch_sizes_and_untraced_inputs_are_refused():
    with raises(ConfigError, type="Linear"):
        dynamic_batch(nn.Linear(2, 2))
    model = dynamic_batch(trace(lambda x, y: x + y, (torch.rand(2, 3), torch.rand(2, 3)), compiler_args=FAST))
    with pytest.raises(RuntimeError, match="ShapeError.*x has 4 rows; y has 2 rows"):
        model(torch.rand(4, 3), torch.rand(2, 3))
    with pytest.raises(RuntimeError, match="ShapeError.*1 inputs, compiled for 2"):
        neuron_models(model)[0]([torch.rand(4, 3)])


def test_models_without_common_rows_are_refused():
    module = Counter()
    for function, inputs, options, details in [
        (
            lambda x, y: x + y,
            (torch.rand(2, 3), torch.rand(3)),
            {},
            {"tensors": {"x": "float32[2, 3]", "y": "float32[3]", "output_0": "float32[2, 3]"}},
        ),
        (lambda x: x.sum(), (torch.rand(2, 3),), {}, {"tensors": {"x": "float32[2, 3]", "output_0": "float32[]"}}),
        (module, (torch.rand(2, 4),), {"input_output_aliases": {module.total: 1}}, {"states": ["total.0"]}),
    ]:
        model = trace(function, inputs, compiler_args=FAST, **options)
        with raises(ConfigError, **details):
            dynamic_batch(model)
