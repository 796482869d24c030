"""Signatures: written into every NEFF, plain data and back, and folders that were exported before there were any."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import Graph, Program
from optimum_neuron.compiler.neff import open_neff, write_neff
from optimum_neuron.engine import Input, OutputAxis, RoleSignature, Signature, StateSignature
from optimum_neuron.errors import ArtifactError
from optimum_neuron.kinds.decoder import decoder_signature
from optimum_neuron.kinds.encoder_decoder import TOKENS, encoder_decoder_signature
from optimum_neuron.models import key_value_state
from tests.test_bad_files import seal
from tests.tiny import NUM_BYTE_TOKENS


def test_plain_data_and_back(original):
    config = original.config
    results = ("logits", "cross_attentions.0")
    for signature in (
        decoder_signature(config, [key_value_state(2, 8, 8)]),
        encoder_decoder_signature(TOKENS, config, encoded=("last_hidden_state",), results=results),
    ):
        assert Signature.from_dict(json.loads(json.dumps(signature.to_dict()))) == signature


def test_every_graph_has_a_role_in_the_signature(model):
    signature = Signature.from_dict(model.prepared.metadata["signature"])
    program = model.loaded.program
    assert {graph.role for graph in program.graphs.values()} == signature.roles.keys()
    for graph in program.graphs.values():
        assert signature[graph.role].names == tuple(graph.inputs)
        assert signature[graph.role].outputs.keys() == graph.outputs.keys()
    assert {name.rpartition(".")[0] for name in program.states} == signature.states.keys()
    assert program.by_size("prefill") == {16: "prefill_16", 48: "prefill_48"}
    assert program.by_size("decode") == {20: "decode_20", 48: "decode_48"}
    assert signature["decode"].inputs[0].limit == NUM_BYTE_TOKENS
    assert signature.state_size(program, "num_slots") == 48


@pytest.fixture
def exported_by_version_1(export_folder, tmp_path):
    """An export without roles, sizes and a signature, as it was written before."""
    folder = shutil.copytree(export_folder, tmp_path / "old")
    with open_neff(folder / "model.neuron") as neff:
        members, document = {name: bytes(neff.read(name)) for name in neff.names}, neff.document
    facts = {name: getattr(document, name) for name in ("name", "target", "core_version", "compiler_version")}
    metadata = {key: value for key, value in document.metadata.items() if key != "signature"}
    program = json.loads(members["program.json"]) | {"ir_version": 1}
    for graph in program["graphs"].values():
        del graph["role"], graph["sizes"]
    members["program.json"] = json.dumps(program).encode()
    write_neff(folder / "model.neuron", members, **facts, metadata=metadata)
    seal(folder)
    return folder


def test_folders_of_before_run(exported_by_version_1, model):
    old = NeuronModelForCausalLM.from_pretrained(exported_by_version_1)
    ids = torch.randint(3, NUM_BYTE_TOKENS, (3, 18), generator=torch.Generator().manual_seed(0))
    options = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0}
    assert torch.equal(old.generate(ids, **options), model.generate(ids, **options))


@pytest.mark.parametrize(
    ("axes", "has_slots"),
    [(("batch_size", "num_slots"), True), (("num_blocks", "block_size"), True), (("batch_size", "channels"), False)],
)
def test_states_with_a_place_for_every_token(axes, has_slots):
    assert StateSignature(axes=axes).has_slots == has_slots


@pytest.mark.parametrize(
    ("window", "stride", "sizes"), [(1, 1, [0, 1, 2, 7]), (3, 2, [0, 0, 0, 3]), (2, 5, [0, 0, 1, 2])]
)
def test_sizes_of_results_are_those_of_convolutions(window, stride, sizes):
    axis = OutputAxis(dim=1, axis="n", window=window, stride=stride)
    assert [axis.size(length) for length in (0, 1, 2, 7)] == sizes
    assert axis.size(7) == len(torch.arange(7).unfold(0, window, stride))


def program(*graphs, **states):
    """A program whose graphs are only their shapes, given as role, name, sizes, and inputs."""
    made = {}
    for role, name, sizes, inputs in graphs:
        specs = {key: TensorSpec(shape=shape, dtype="int64") for key, shape in inputs.items()}
        made[name] = Graph(name=name, inputs=specs, outputs={"logits": "tmp:0"}, calls=(), role=role, sizes=sizes)
    specs = {name: TensorSpec(shape=shape, dtype="float32") for name, shape in states.items()}
    return Program(graphs=made, subprograms={}, weights={}, states=specs, constants={})


def signature(**inputs):
    specs = tuple(Input(name=name, dtype="int64", axes=axes) for name, axes in inputs.items())
    states = {
        "keys": StateSignature(axes=("batch_size", "num_slots")),
        "window": StateSignature(axes=("batch_size", "num_slots")),
        "conv": StateSignature(axes=("batch_size", "channels")),
    }
    return Signature(roles={"decode": RoleSignature(inputs=specs, outputs={"logits": ()})}, states=states)


def test_rings_of_layers_that_keep_the_newest_tokens():
    decode = ("decode", "d", {"num_slots": 12}, {"ids": (2, 1)})
    shorter = ("decode", "e", {"num_slots": 6}, {"ids": (2, 1)})
    extend = ("extend", "x", {"num_tokens": 3}, {"ids": (2, 3)})
    own, rings = {"keys.0": (2, 12), "conv.1": (2, 4)}, {"window.2": (2, 8), "window.3": (2, 5)}
    whole, divided = program(shorter, decode, **own), program(decode, extend, **own, **rings)
    one = signature(ids=("batch_size", "num_tokens"))
    assert (one.smallest_ring(whole), one.num_forgettable(whole)) == (None, None)
    assert (one.smallest_ring(divided), one.num_forgettable(divided)) == (5, 3)
    assert one.smallest_ring(program(extend, **own, **rings)) is None
    assert one.num_forgettable(program(decode, **own, **rings)) == 1
    assert (one.state_size(divided, "channels"), one.state_size(divided, "num_slots")) == (4, 12)
    with pytest.raises(AssertionError):
        one.state_size(divided, "block_size")
    assert one["decode"].sizes(divided.graphs["d"]) == {"batch_size": 2, "num_tokens": 1}
    assert not one.is_paged and signature(ids=("a",), block_table=("a",)).is_paged
    assert not Signature(roles={"forward": one["decode"]}).is_paged


def test_differences_from_a_program_are_listed():
    decode = ("decode", "d", {"num_slots": 12}, {"ids": (2, 1)})
    states = {"keys.0": (2, 12), "keys.1": (2, 12), "window.0": (2, 8), "conv.0": (2, 4)}
    one = signature(ids=("batch_size", "num_tokens"))
    assert one.problems(program(decode, **states)) == []
    assert one.problems(program(decode, **{"keys.0": (2, 12)})) == [], "a stage of a model has fewer states"
    others = {
        "rank of an input": program(("decode", "d", {}, {"ids": (2,)}), **states),
        "name of an input": program(("decode", "d", {}, {"tokens": (2, 1)}), **states),
        "role": program(("score", "d", {}, {"ids": (2, 1)}), **states),
        "rank of a state": program(decode, **{"keys.0": (2, 12, 1)}),
        "unknown state": program(decode, **{"values.0": (2, 12)}),
    }
    assert {name: len(one.problems(other)) for name, other in others.items()} == dict.fromkeys(others, 1)
    results = dataclasses.replace(one["decode"], outputs={"scores": ()})
    assert len(Signature(roles={"decode": results}, states=one.states).problems(program(decode, **states))) == 1


def test_signatures_of_version_0_1_have_one_role():
    role = RoleSignature(inputs=(Input(name="ids", dtype="int64", axes=("batch_size",)),), outputs={"logits": ()})
    data = json.loads(json.dumps(dataclasses.asdict(role)))
    assert Signature.from_dict(data) == Signature(roles={"forward": role})
    with pytest.raises(ArtifactError) as error:
        Signature.from_dict({**data, "inputs": 3}, file="old.neuron")
    assert (error.value.details["file"], error.value.details["key"]) == ("old.neuron", "signature")
    with pytest.raises(ArtifactError) as error:
        Signature.from_dict({**data, "ignored": [3]}, file="old.neuron")
    assert error.value.details["value"] == 3
