"""Bodies as JSON: round trips, and errors for anything else."""

import inspect
import json
import math

import pytest
import torch

from optimum_neuron.compiler import shares_memory
from optimum_neuron.compiler.serialize import body_from_dict, body_to_dict, make_subprogram, mutated_arguments
from optimum_neuron.errors import ArtifactError
from tests.programs import body_of, spec, subprogram_of
from tests.raising import raises


def stored(subprogram):
    return json.loads(json.dumps(body_to_dict(subprogram.body)))


def one_call(op, args=(), kwargs=None, **changes):
    """A stored body of one float32[2] input and one call."""
    node = {"op": op, "args": list(args), "kwargs": kwargs or {}, "module_path": "", "source_line": ""}
    return {"inputs": [{"shape": [2], "dtype": "float32"}], "nodes": [node], "outputs": [{"ref": 1}]} | changes


def arithmetic(x, y):
    low, high = x.chunk(2, dim=-1)
    y[:, :2].copy_(low)
    return torch.cat([high, y], -1).to(torch.bfloat16), x.sum(dim=[0, 1], keepdim=True)


def test_body_keeps_name_signature_and_results():
    original = subprogram_of(arithmetic, spec(3, 4), spec(3, 4), num_outputs=2)
    second = make_subprogram(body_from_dict(stored(original)))
    assert (second.name, second.inputs, second.outputs) == (original.name, original.inputs, original.outputs)
    assert second.mutated == original.mutated == (1,)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    actual, reference = y.clone(), y.clone()
    for result, expected in zip(second.body(x, actual), original.body(x, reference), strict=True):
        assert result.dtype == expected.dtype and torch.equal(result, expected)
    assert torch.equal(actual, reference) and not torch.equal(actual, y)


class Doubles(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.linear(x, 2 * x)


def test_module_paths_and_source_lines_are_stored_but_not_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    original = subprogram_of(Doubles(), spec(2, 2))
    data = stored(original)
    line = inspect.getsourcelines(Doubles.forward)[1] + 1
    assert [node["source_line"] for node in data["nodes"]] == [f"{__file__}:{line}"] * 2
    assert data["nodes"][0]["module_path"] == "function"
    data["nodes"][0] |= {"module_path": "layers.7", "source_line": "elsewhere.py:1"}
    moved = make_subprogram(body_from_dict(data))
    assert moved.name == original.name
    node = next(node for node in moved.body.graph.nodes if node.op == "call_function")
    assert (node.meta["module_path"], node.meta["source_line"]) == ("layers.7", "elsewhere.py:1")


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x * 3, [spec(2)]),
        (lambda x: x + 2, [spec(2)]),
        (lambda x: x * 2, [spec(3)]),
        (lambda x: x * 2, [spec(2, dtype="bfloat16")]),
        (lambda x: x.mul(2).mul(2), [spec(2)]),
    ],
    ids=["number", "operator", "shape", "dtype", "length"],
)
def test_other_content_has_another_name(function, inputs):
    assert subprogram_of(function, *inputs).name != subprogram_of(lambda x: x * 2, spec(2)).name


def test_non_json_numbers_and_torch_values_round_trip():
    def function(x):
        full = torch.full_like(x, math.inf) + torch.full_like(x, -math.inf) + torch.full_like(x, math.nan)
        return full, torch.zeros(2, dtype=torch.int32, device="cpu"), x.clone(memory_format=torch.contiguous_format)

    data = stored(subprogram_of(function, spec(2), num_outputs=3))
    text = json.dumps(data, allow_nan=False)
    assert '{"float": "inf"}' in text and '{"float": "-inf"}' in text and '{"float": "nan"}' in text
    assert '{"torch": "int32"}' in text and '{"device": "cpu"}' in text
    full, zeros, same = body_from_dict(data)(torch.tensor([1.0, 2.0]))
    assert full.isnan().all() and zeros.dtype == torch.int32 and same.tolist() == [1.0, 2.0]


NAMES = """
    aten.no_such_thing.default aten.add.NoOverload aten.add aten.__class__.x aten.add.__class__ aten.add.Tensor.default
    aten.__init__.__globals__ prims.convert_element_type.default inductor.accumulate_grad_.default
    quantized.linear.default torch.load builtins.eval os.system getitem.x
"""


@pytest.mark.parametrize("name", [*NAMES.split(), "", None, 7])
def test_only_overloads_of_aten_operators_are_called(name):
    with pytest.raises(ArtifactError) as error:
        body_from_dict(one_call(name, [{"ref": 0}]))
    assert error.value.details == {"operator": name}


def test_file_reading_operator_is_refused(tmp_path):
    target = tmp_path / "made"
    arguments = [str(target), True, 8]
    with raises(ArtifactError) as error:
        body_from_dict(one_call("aten.from_file.default", arguments, {"dtype": {"torch": "uint8"}}))
    assert list(error.value.details) == ["error"] and not target.exists()


ARGUMENTS = [
    *({"ref": value} for value in (5, 1, -1, True, "0")),
    *({"float": value} for value in ("1e3", ["inf"])),
    *({"torch": value} for value in ("load", "float32.__class__", None)),
    *({"ref": 0, "float": "inf"}, {}, {"device": "cuda"}, {"eval": "1"}, [{"ref": 9}]),
]


@pytest.mark.parametrize("argument", ARGUMENTS, ids=str)
def test_arguments_of_another_encoding_are_refused(argument):
    with pytest.raises(ArtifactError):
        body_from_dict(one_call("aten.mul.Tensor", [{"ref": 0}, argument]))


@pytest.mark.parametrize(
    "data",
    [
        one_call("aten.mul.Tensor", [{"ref": 0}]),
        one_call("aten.mul.Tensor", [{"ref": 0}, 2], {"no_such_option": 1}),
        one_call("aten.matmul.default", [{"ref": 0}, {"ref": 0}], outputs=[{"ref": 7}]),
        one_call("aten.view.default", [{"ref": 0}, [3]]),
        one_call("aten.relu.default", [{"ref": 0}], inputs=[{"shape": [-2], "dtype": "float32"}]),
        one_call("aten.relu.default", [{"ref": 0}], inputs=[{"shape": [2], "dtype": "load"}]),
        one_call("aten.relu.default", [{"ref": 0}], inputs=[{"shape": [2]}]),
        one_call("aten.relu.default", [{"ref": 0}], nodes=[{"op": "aten.relu.default"}]),
        {"inputs": []},
        [],
    ],
    ids=["arity", "keyword", "output", "shape", "negative", "dtype", "no dtype", "no arguments", "no nodes", "no body"],
)
def test_invalid_body_data_is_refused(data):
    with pytest.raises(ArtifactError):
        body_from_dict(data)


def test_writes_are_found_through_every_kind_of_view():
    def function(a, b, c, d, e):
        a.add_(1)
        b.view(-1)[2:].mul_(2)
        c.chunk(2)[1].copy_(e[:1])
        d.to(torch.bfloat16).add_(1)
        e.transpose(0, 1).reshape(-1).zero_()
        return a + b + c + d + e

    body = body_of(function, *[spec(2, 4)] * 5)
    assert mutated_arguments(body) == (0, 1, 2)


def test_cast_or_transposed_reshape_is_copy():
    def function(x):
        return x.to(torch.float64), x.view(-1), x.t().reshape(-1), x.reshape(-1), x.t().contiguous(), x.split(1)[0] + 0

    body = body_of(function, spec(2, 3), num_outputs=6)
    (results,) = next(node for node in body.graph.nodes if node.op == "output").args
    assert [shares_memory(node) for node in results] == [False, True, False, True, False, False]
    assert shares_memory(results[-1].args[0]), "a part of a split"
