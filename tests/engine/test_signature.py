"""Signatures: written into every NEFF, plain data and back, and folders that were exported before there were any."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.neff import open_neff, write_neff
from optimum_neuron.engine import Signature
from optimum_neuron.exporters import decoder_signature, encoder_decoder_signature
from optimum_neuron.exporters.seq2seq import TOKENS
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


def test_every_graph_has_a_role_that_the_signature_describes(model):
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
def exported_by_version_1(exported, tmp_path):
    """An export without roles, sizes and a signature, as it was written before."""
    folder = shutil.copytree(exported, tmp_path / "old")
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
