"""Calls of any size on graphs of fixed sizes; the reference is the same function on the inputs as they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.engine import Forward, Input, OutputAxis, RoleSignature
from optimum_neuron.engine.forward import _padded, real_sizes
from optimum_neuron.errors import NeuronError, ShapeError
from tests.raising import raises

ROWS, TOKENS = OutputAxis(dim=0, axis="batch_size"), OutputAxis(dim=1, axis="sequence_length")
SIGNATURE = RoleSignature(
    inputs=(
        Input(name="ids", dtype="int64", axes=("batch_size", "sequence_length"), padding=9, limit=50),
        Input(name="mask", dtype="int64", axes=("batch_size", "sequence_length"), default=1),
        Input(name="kinds", dtype="int64", axes=("batch_size", "sequence_length"), default=0),
        Input(name="weight", dtype="float32", axes=("batch_size", "num_channels")),
    ),
    outputs={
        "states": (ROWS, TOKENS),
        "frames": (ROWS, OutputAxis(dim=1, axis="sequence_length", window=3, stride=2)),
        "pooled": (ROWS,),
        "scale": (),
    },
    padded={"sequence_length": "a mask"},
    exact={"num_channels": "channels mix"},
    smallest={"sequence_length": 3},
)


def function(ids, mask, weight, kinds):
    return {
        "states": ids * 2 + mask + kinds * 100,
        "frames": ids.unfold(1, 3, 2).sum(-1),
        "pooled": (ids * mask).sum(1) * weight.sum(1),
        "scale": torch.tensor(5.0),
    }


class Replicas:
    """Copies of a program with graphs of 1 or 2 rows and 4 or 8 tokens, and a graph of another role."""

    def __init__(self, num_copies=1):
        graphs = [self.graph("forward", rows, length) for rows in (1, 2) for length in (4, 8)]
        graphs.append(self.graph("encode", 64, 64))
        self.graphs = {graph.name: graph for graph in graphs}
        self.loaded = [SimpleNamespace(program=SimpleNamespace(graphs=self.graphs))] * num_copies
        self.runs = []

    @staticmethod
    def graph(role, rows, length):
        shapes = {"ids": (rows, length), "mask": (rows, length), "kinds": (rows, length), "weight": (rows, 3)}
        inputs = {name: TensorSpec(shape=shape, dtype="int64") for name, shape in shapes.items()}
        return SimpleNamespace(name=f"{role}_{rows}x{length}", role=role, inputs=inputs)

    def run_all(self, calls):
        for name, inputs in calls:
            shapes = [tuple(tensor.shape) for tensor in inputs]
            assert shapes == [spec.shape for spec in self.graphs[name].inputs.values()]
            assert all(tensor.is_contiguous() for tensor in inputs)
            self.runs.append((name, inputs))
        self.results = [function(**dict(zip(self.graphs[name].inputs, inputs, strict=True))) for name, inputs in calls]
        return self.results


def inputs_of(num_rows, length):
    ids = torch.arange(num_rows * length).reshape(num_rows, length) % 50
    others = {"mask": torch.ones_like(ids), "kinds": torch.zeros_like(ids), "weight": torch.rand(num_rows, 3)}
    return {"ids": ids, **others}


@pytest.mark.parametrize(
    ("num_rows", "length", "num_copies", "graphs"),
    [
        (1, 4, 1, ["1x4"]),
        (2, 3, 1, ["2x4"]),
        (2, 5, 2, ["1x8", "1x8"]),
        (3, 8, 1, ["2x8", "1x8"]),
        (5, 7, 1, ["2x8", "2x8", "1x8"]),
    ],
)
def test_results_are_those_of_the_inputs_as_they_are(num_rows, length, num_copies, graphs):
    replicas, inputs = Replicas(num_copies), inputs_of(num_rows, length)
    results = Forward(replicas, "forward", SIGNATURE)(inputs)
    expected = function(**inputs)
    assert results.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(results[name], tensor)
    assert [name for name, _ in replicas.runs] == [f"forward_{one}" for one in graphs]
    is_copied = results["states"].data_ptr() != replicas.results[0]["states"].data_ptr()
    assert is_copied == (len(graphs) > 1), "the only part is taken as it is"


def test_choices_are_padded_with_the_first_one():
    spec = Input(name="ids", dtype="int64", axes=("batch_size", "num_choices", "sequence_length"), padding=9)
    sizes = {"batch_size": 1, "num_choices": 2, "sequence_length": 2}
    padded = _padded(spec, torch.tensor([[[1, 2], [3, 4]]]), sizes, {"num_choices": 3, "sequence_length": 3})
    assert padded.tolist() == [[[1, 2, 9], [3, 4, 9], [1, 2, 9]]]
    assert _padded(spec, padded, sizes | {"num_choices": 3, "sequence_length": 3}, {}) is padded, "nothing is copied"


def test_padding_has_the_value_of_its_input():
    replicas, inputs = Replicas(), inputs_of(1, 3)
    del inputs["mask"], inputs["kinds"]
    Forward(replicas, "forward", SIGNATURE)({**inputs, "weight": inputs["weight"].double()})
    ((_, (ids, mask, kinds, weight)),) = replicas.runs
    assert not kinds.any()
    assert ids.tolist() == [[0, 1, 2, 9]] and mask.tolist() == [[1, 1, 1, 0]] and weight.dtype == torch.float32


CHANGES = {
    "no tensor": ({"ids": [[1, 2, 3]]}, ["ids"]),
    "missing": ({"ids": None}, ["ids"]),
    "rank": ({"ids": torch.ones(3, dtype=torch.long)}, ["ids"]),
    "floating-point ids": ({"ids": torch.ones(2, 4)}, ["ids"]),
    "integer weights": ({"weight": torch.ones(2, 3, dtype=torch.long)}, ["weight"]),
    "complex ids": ({"ids": torch.ones(2, 4, dtype=torch.complex64)}, ["ids"]),
    "complex weights": ({"weight": torch.ones(2, 3, dtype=torch.complex64)}, ["weight"]),
    "true or false": ({"mask": torch.ones(2, 4, dtype=torch.bool)}, ["mask"]),
    "empty": ({"weight": torch.ones(2, 0)}, ["weight"]),
    "below the vocabulary": ({"ids": torch.tensor([[3, -1, 3, 3]] * 2)}, ["ids"]),
    "beyond the vocabulary": ({"ids": torch.arange(47, 51).expand(2, -1) * torch.tensor([[0], [1]])}, ["ids"]),
    "rows": ({"weight": torch.ones(1, 3)}, ["weight"]),
    "short": (dict.fromkeys(("ids", "mask", "kinds"), torch.ones(2, 2, dtype=torch.long)), ["ids", "mask", "kinds"]),
    "shorter": (dict.fromkeys(("ids", "mask", "kinds"), torch.ones(2, 1).long()), ["ids", "mask", "kinds"]),
    "unknown": ({"other": torch.ones(2)}, ["other"]),
    "several": ({"ids": None, "weight": torch.ones(2)}, ["ids", "weight"]),
}


SAID = {
    "below the vocabulary": "-1,",
    "beyond the vocabulary": "50,",
    "floating-point ids": "takes integers",
    "integer weights": "floating-point",
    "missing": "[batch_size, sequence_length], optional",
    "rank": "[batch_size, num_channels].",
}
"""What is wrong, and which inputs may be left out."""


@pytest.mark.parametrize("case", sorted(CHANGES))
def test_inputs_that_do_not_fit_are_all_named(case):
    changed, names = CHANGES[case]
    inputs = {name: tensor for name, tensor in {**inputs_of(2, 4), **changed}.items() if tensor is not None}
    with pytest.raises(ShapeError) as failure:
        real_sizes(SIGNATURE, inputs)
    assert failure.value.details["names"] == names and len(failure.value.details["problems"]) == len(names)
    assert SAID.get(case, "") in failure.value.message


def test_sizes_at_the_ends_of_ranges_are_taken():
    inputs = inputs_of(2, 3) | {"ids": torch.tensor([[0, 49, 1], [0, 49, 1]])}
    assert real_sizes(SIGNATURE, inputs) == {"batch_size": 2, "sequence_length": 3, "num_channels": 3}
    mask = RoleSignature(inputs=(Input(name="attention_mask", dtype="int64", axes=("batch_size",)),), outputs={})
    assert real_sizes(mask, {"attention_mask": torch.ones(2, dtype=torch.bool)}) == {"batch_size": 2}


def test_axes_without_a_bucket_are_all_named():
    forward = Forward(Replicas(), "forward", SIGNATURE)
    assert forward.buckets == {"batch_size": (1, 2), "sequence_length": (4, 8), "num_channels": (3,)}
    assert (
        forward.choose_bucket("sequence_length", 5).value == 8 and forward.choose_bucket("num_channels", 3).value == 3
    )
    with raises(ShapeError, axis="num_channels", size=2, buckets=[3]) as failure:
        forward.choose_bucket("num_channels", 2)
    assert "RGB" in failure.value.hint
    inputs = inputs_of(2, 9) | {"weight": torch.ones(2, 4)}
    for details in ({"size": 9, "buckets": [4, 8]}, {"axis": "num_channels", "size": 4}):
        with raises(NeuronError, **details):
            forward(inputs)
