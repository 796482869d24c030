"""Nested arguments become inputs of an entry point; rows are padded, split, and joined again."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from optimum_neuron.engine import Call, Calls, Leaf, flatten, unflatten
from optimum_neuron.errors import ArtifactError, ShapeError


class Doubling:
    """Stands for copies of a program that doubles its first input, which has two rows."""

    def __init__(self, num_copies=1):
        self.loaded, self.runs = [None] * num_copies, []

    def run_all(self, calls):
        self.runs += [(graph, [tuple(tensor.shape) for tensor in inputs]) for graph, inputs in calls]
        self.results = [{"output": inputs[0] * 2 + inputs[1]} for _, inputs in calls]
        return self.results


def call(num_rows=2):
    tree, _ = flatten({"sample": torch.zeros(num_rows, 3), "timestep": 1.0, "return_dict": False})
    return Call(
        graph="forward",
        method="forward",
        arguments=tree,
        inputs=(
            Leaf(name="sample", dtype="float32", shape=(num_rows, 3), rows=0),
            Leaf(name="timestep", dtype="float32", shape=()),
        ),
        result={"tuple": [{"tensor": 0}]},
        outputs=(Leaf(name="0", dtype="float32", shape=(num_rows, 3), rows=0),),
    )


@pytest.mark.parametrize(("num_rows", "num_runs"), [(1, 1), (2, 1), (3, 2), (5, 3)])
def test_any_number_of_rows(num_rows, num_runs):
    copies = Doubling()
    sample = torch.randn(num_rows, 3)
    (result,) = Calls(copies, [call()])(
        "forward", {"timestep": torch.tensor(7), "sample": sample, "return_dict": False}
    )
    assert torch.equal(result, sample * 2 + 7)
    assert (result.data_ptr() == copies.results[0]["output"].data_ptr()) == (num_runs == 1), "nothing else is copied"
    assert copies.runs == [("forward", [(2, 3), ()])] * num_runs


def test_other_arguments_are_refused_and_compiled_ones_named():
    calls = Calls(Doubling(), [call()])
    with pytest.raises(ShapeError) as error:
        calls("forward", {"sample": torch.zeros(2, 4), "timestep": 1.0, "return_dict": False})
    assert error.value.details["compiled"] == ["forward(sample [rows, 3], timestep [])"]
    with pytest.raises(ShapeError):
        calls("forward", {"sample": torch.zeros(2, 3), "timestep": 1.0, "return_dict": True})


def two_kinds_of_rows():
    """A call of two pictures and three prompts: which rows belong together is unknown."""
    tree, _ = flatten({"pictures": torch.zeros(2, 3), "prompts": torch.zeros(3)})
    leaves = [Leaf(name=name, dtype="float32", shape=shape, rows=0) for name, shape in (("a", (2, 3)), ("b", (3,)))]
    outputs = (Leaf(name="0", dtype="float32", shape=(2, 3), rows=0),)
    result = {"tensor": 0}
    return Call(graph="g", method="forward", arguments=tree, inputs=tuple(leaves), result=result, outputs=outputs)


def test_different_numbers_of_rows_are_neither_padded_nor_split():
    copies, pictures, prompts = Doubling(), torch.randn(2, 3), torch.randn(3)
    calls = Calls(copies, [two_kinds_of_rows()])
    result = calls("forward", {"pictures": pictures.double(), "prompts": prompts})
    assert result.dtype == torch.float32 and torch.equal(result, pictures.double().float() * 2 + prompts)
    assert copies.runs == [("g", [(2, 3), (3,)])] and two_kinds_of_rows().num_rows is None
    for shapes, number in (((1, 3), 3), ((2, 2), 3), ((2, 2, 3), 3), ((2, 3), 2)):
        with pytest.raises(ShapeError) as error:
            calls("forward", {"pictures": torch.zeros(*shapes), "prompts": torch.zeros(number)})
        assert error.value.details["method"] == "forward" and len(error.value.details["compiled"]) == 1
    with pytest.raises(ShapeError):
        calls("decode", {"pictures": pictures, "prompts": prompts})


def test_a_tensor_without_rows_is_of_every_run():
    leaf, scale = Leaf(name="x", dtype="float32", shape=(3, 2), rows=1), Leaf(name="s", dtype="float32", shape=(1,))
    assert (leaf.num_rows, scale.num_rows, leaf.spec.shape) == (2, None, (3, 2))
    assert leaf.fits(torch.zeros(3, 9)) and not leaf.fits(torch.zeros(4, 2)) and not leaf.fits(torch.zeros(3))
    tree, _ = flatten({"x": torch.zeros(3, 2), "s": torch.zeros(1)})
    results = {"outputs": (leaf, scale), "result": {"tuple": [{"tensor": 0}, {"tensor": 1}]}}
    copies = Doubling()
    copies.run_all = lambda runs: [{"x": inputs[1] + inputs[0], "s": inputs[0]} for _, inputs in runs]
    call_of = Call(graph="g", method="forward", arguments=tree, inputs=(scale, leaf), **results)
    x, one = torch.randn(3, 5), torch.ones(1)
    summed, scaled = Calls(copies, [call_of])("forward", {"x": x, "s": one})
    assert torch.equal(summed, x + 1) and torch.equal(scaled, one)


def test_rows_can_be_compiled_otherwise():
    half = call(4).with_rows(2)
    assert half == call(2) and half.num_rows == 2
    leaf = Leaf(name="x", dtype="float32", shape=(3, 4, 5, 6), rows=1)
    (wide,) = dataclasses.replace(half, inputs=(leaf,), outputs=()).with_rows(9).inputs
    assert wide.shape == (3, 9, 5, 6)


def test_tensors_are_numbered_in_their_order():
    output = BaseModelOutput(last_hidden_state=torch.ones(2))
    tree, tensors = flatten({"b": [torch.ones(1), 2.5], "a": torch.zeros(1), "c": True, "d": output})
    assert list(tensors) == ["a", "b.0", "b.1", "d.last_hidden_state"] and list(flatten(torch.ones(1))[1]) == ["output"]
    again = unflatten(tree, list(tensors.values()))
    assert [float(one) for one in (again["a"], *again["b"])] == [0, 1, 2.5]
    assert type(again["b"]) is list and type(unflatten(*flatten(((),)))) is tuple and flatten(object()) == (None, {})
    assert again["c"] is True and type(again["d"]) is BaseModelOutput and again["d"][0] is output[0]


def test_nested_values_survive_a_file():
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    value = {
        "many": [torch.ones(1) * index for index in range(12)],
        "output": BaseModelOutput(last_hidden_state=torch.ones(2), hidden_states=(torch.zeros(1), torch.ones(1))),
        "latents": DiagonalGaussianDistribution(torch.arange(4.0)[None]),
        "nothing": {},
        "flag": True,
        "cache": object(),
    }
    tree, tensors = flatten(value)
    again = unflatten(json.loads(json.dumps(tree, sort_keys=True)), list(tensors.values()))
    assert [int(one) for one in again["many"]] == list(range(12))
    assert torch.equal(again["output"].hidden_states[1], torch.ones(1))
    assert torch.equal(again["latents"].parameters, value["latents"].parameters)
    assert again["nothing"] == {} and again["flag"] is True and again["cache"] is None
    assert type(again["many"]) is list and type(again["output"].hidden_states) is tuple


def test_a_call_survives_a_file():
    assert Call.from_dict(json.loads(json.dumps(call().to_dict()))) == call()


def test_a_folder_imports_no_other_module(tmp_path, monkeypatch):
    (tmp_path / "module_of_a_stranger.py").write_text("class BaseOutput: pass\nclass Output(BaseOutput): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArtifactError):
        unflatten({"output": "module_of_a_stranger:Output", "fields": {}}, [])
    assert "module_of_a_stranger" not in sys.modules


@pytest.mark.parametrize(
    "path", ["os:system", "transformers.utils.hub:cached_file", "transformers:Nothing", "transformers:GenerationConfig"]
)
def test_a_folder_names_no_other_class(path):
    with pytest.raises(ArtifactError) as caught:
        unflatten({"output": path, "fields": {}}, [])
    assert caught.value.details["class_name"] == path
