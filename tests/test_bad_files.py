"""Damaged, foreign and forged files of weights and of exports: one error with its reason, and nothing is executed.

Each kind of damage has tests with its reader: `compiler/test_neff_read.py`, `weights/`, `exporters/test_folder.py`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.neff import open_neff, write_neff
from optimum_neuron.engine import Signature
from optimum_neuron.errors import (
    ArtifactError,
    FormatVersionError,
    ModelError,
    NeuronError,
    TargetMismatchError,
    ValidationError,
    WeightsError,
)
from optimum_neuron.exporters import main_export
from optimum_neuron.files.records import file_hash
from optimum_neuron.sources import read_config, require_sizes
from tests.raising import raises
from tests.tiny import SHAPES, SMALL, save_tiny, words_of

load = NeuronModelForCausalLM.from_pretrained


# Weights of a checkpoint.


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def damaged(checkpoint: Path, to: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    return change_weights(shutil.copytree(checkpoint, to), change)


UP = "model.layers.1.mlp.up_proj.weight"
DAMAGE: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "missing": (lambda t: t.pop(UP), UP),
    "renamed": (lambda t: t.update({"model.layers.1.mlp.upp_proj.weight": t.pop(UP)}), UP),
    "reshaped": (lambda t: t.update({UP: t[UP].T.contiguous()}), "[32, 64]"),
    "narrower": (lambda t: t.update({UP: t[UP][:, 1:].contiguous()}), "[64, 31]"),
}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("family", ["llama", "generic"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_misfit_weights_are_named(checkpoint, model, tmp_path, kind, family):
    """With validation off: transformers would fill missing tensors with random numbers, and nobody would notice."""
    change, part = DAMAGE[kind]
    options = {**SMALL, "family": family, "disable_validation": True}
    with raises(WeightsError) as error:
        load(damaged(checkpoint, tmp_path / "damaged", change), export=True, **options)
    assert any(part in problem for problem in error.value.details["problems"])


def test_all_weight_problems_are_reported_together(checkpoint, tmp_path):
    def change(tensors):
        del tensors["model.norm.weight"], tensors["lm_head.weight"]

    with raises(WeightsError, problems=["lm_head.weight", "model.norm.weight"]):
        load(damaged(checkpoint, tmp_path / "damaged", change), export=True, **SHAPES)


def test_truncated_safetensors_file(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    os.truncate(copy / "model.safetensors", (copy / "model.safetensors").stat().st_size - 100)
    with raises(WeightsError, path=str(copy / "model.safetensors")):
        load(copy, export=True, **SHAPES)


def test_pickled_weights_are_not_read(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(WeightsError) as error:
        load(copy, export=True, **SHAPES)
    assert error.value.details["pickles"] == ["pytorch_model.bin"]


def test_non_finite_weights_are_not_exported(tmp_path):
    checkpoint = save_tiny(tmp_path / "nan", "llama")
    spoilt = damaged(checkpoint, tmp_path / "spoilt", lambda t: t["model.norm.weight"].fill_(torch.nan))
    with raises(ValidationError) as error:
        main_export(spoilt, tmp_path / "out", **SMALL)
    assert any(math.isnan(row["max_abs_error"]) for row in error.value.details["validation"])
    assert not (tmp_path / "out").exists()


# Exported folders.


@pytest.fixture
def copy(export_folder, tmp_path) -> Path:
    """An exported folder that a test may damage."""
    return shutil.copytree(export_folder, tmp_path / "copy")


def seal(export: Path) -> None:
    """Update the hashes in the marker to the files, as a forger would."""
    path = export / "neuron_config.json"
    data = json.loads(path.read_text())
    data["artifact"]["neff_sha256"] = file_hash(export / "model.neuron")
    data["artifact"]["weights"]["sha256"] = file_hash(export / "model.safetensors")
    path.write_text(json.dumps(data))


def rewrite(path: Path, change: Callable[[dict[str, bytes]], Any], **facts: Any) -> None:
    """Change members and facts of a NEFF and write it with a right hash."""
    with open_neff(path) as neff:
        members, document = {name: bytes(neff.read(name)) for name in neff.names}, neff.document
    change(members)
    names = ("name", "target", "core_version", "compiler_version", "metadata")
    write_neff(path, members, **{name: getattr(document, name) for name in names} | facts)


def refused(export: Path, error: type[NeuronError], cli=None, **details: Any) -> None:
    with raises(error, **details):
        load(export)
    if cli is not None:
        result = cli("neuron", "inspect", str(export))
        assert (result.code, result.stdout) == (1, "")
        assert "Traceback" not in result.stderr and result.stderr.splitlines()[-1].startswith("next: ")


def test_artifact_of_another_generation(checkpoint, tmp_path, cli):
    words = words_of({**SMALL, "extend_length": None, "instance_type": "trn2", "disable_validation": True})
    assert cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "trn2"), *words).code == 0
    assert load(tmp_path / "trn2").describe()["target"]["value"] == "trn2"
    with raises(TargetMismatchError, compiled_for="trn2", compiled_core_version=3, target="inf2"):
        load(tmp_path / "trn2", instance_type="inf2")


def test_program_of_newer_ir(copy, cli):
    def newer(members):
        members["program.json"] = json.dumps({**json.loads(members["program.json"]), "ir_version": 99}).encode()

    rewrite(copy / "model.neuron", newer)
    seal(copy)
    refused(copy, FormatVersionError, cli, ir_version=99)


def test_truncated_neff(copy, cli):
    os.truncate(copy / "model.neuron", (copy / "model.neuron").stat().st_size - 1)
    refused(copy, ArtifactError, cli, file=str(copy / "model.neuron"))
    seal(copy)
    refused(copy, ArtifactError, cli, reason="other_size")


def test_flipped_byte_in_weights(copy, cli):
    path = copy / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    refused(copy, WeightsError, cli, file=str(path), actual=file_hash(path))


def test_body_with_invalid_call(copy):
    def call_the_shell(members):
        name = next(name for name in members if name.startswith("bodies/"))
        members[name] = members[name].replace(b"aten.", b"os.", 1)

    rewrite(copy / "model.neuron", call_the_shell)
    seal(copy)
    with raises(ArtifactError) as error:
        load(copy)
    assert error.value.details["operators"][0].startswith("os.")


def test_neff_without_weight_records(copy):
    rewrite(copy / "model.neuron", lambda members: None, metadata={})
    seal(copy)
    with raises(ArtifactError, path=str(copy / "model.neuron")) as error:
        load(copy)
    problems = error.value.details["problems"]
    assert "its metadata has no family" in problems and "its metadata has no stacks" in problems


@pytest.mark.parametrize("kind", DAMAGE)
def test_misfit_weights_of_export(copy, kind):
    change, part = DAMAGE[kind]
    change_weights(copy, change)
    seal(copy)
    with raises(WeightsError) as error:
        load(copy)
    assert any(part in problem for problem in error.value.details["problems"])


INPUT = {"name": "input_ids", "dtype": "int64", "axes": ["batch_size"]}
ROLE = {"inputs": [INPUT], "outputs": {"logits": [{"dim": 0, "axis": "batch_size"}]}, "ignored": []}
FORGED: dict[str, Any] = {
    "a number": 7,
    "a list": [],
    "empty": {},
    "no roles": {"roles": 5, "states": {}},
    "unknown role": {"roles": {"x": ROLE}, "states": {}},
    "input that is no object": {**ROLE, "inputs": [3]},
    "unknown key of an input": {**ROLE, "inputs": [{**INPUT, "x": 1}]},
    "name that is a number": {**ROLE, "inputs": [{**INPUT, "name": 3}]},
    "axes that are a number": {**ROLE, "inputs": [{**INPUT, "axes": 3}]},
    "padding that is a text": {**ROLE, "inputs": [{**INPUT, "padding": "x"}]},
    "padding that is no number": {**ROLE, "inputs": [{**INPUT, "padding": float("nan")}]},
    "huge limit": {**ROLE, "inputs": [{**INPUT, "limit": 10**30}]},
    "stride of zero": {**ROLE, "outputs": {"a": [{"dim": 0, "axis": "b", "stride": 0}]}},
    "dimension out of range": {**ROLE, "outputs": {"a": [{"dim": -100, "axis": "b"}]}},
    "outputs that are a list": {**ROLE, "outputs": []},
    "reasons that are numbers": {**ROLE, "padded": {"a": 1}},
    "sizes that are texts": {**ROLE, "smallest": {"a": "1"}},
    "states that are texts": {"roles": {"forward": ROLE}, "states": {"a": "b"}},
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_forged_signature(data):
    with pytest.raises(ArtifactError) as error:
        Signature.from_dict(data, file="model.neuron")
    assert error.value.details["key"].startswith("signature") and error.value.details["file"] == "model.neuron"


SIZES = (0, -1, 10**12, True, "4", 4.0, [[4]], {}, float("nan"), float("inf"))


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size"])
@pytest.mark.parametrize("value", SIZES, ids=str)
def test_sizes_of_a_configuration(key, value, checkpoint, tmp_path):
    path = shutil.copytree(checkpoint, tmp_path / "copy") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ModelError) as error:
        read_config(path.parent)
    assert error.value.details.get("key", key).partition(".")[0] == key


@pytest.mark.parametrize("sizes", [{"num_hidden_layers": 10**7}, {"num_hidden_layers": 5000, "num_experts": 60_000}])
def test_many_layers_end_at_once(sizes, checkpoint, tmp_path, cli):
    path = shutil.copytree(checkpoint, tmp_path / "copy") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **sizes}))
    result = cli("export", "neuron", "-m", str(path.parent), str(tmp_path / "out"), "--sequence_length", "32")
    assert result.code == 1 and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128},  # Llama 3.1 405B
        {"max_position_embeddings": 10_485_760, "num_local_experts": 128},  # Llama 4
        {"num_attention_heads": [1, 2, 5, 8], "num_key_value_heads": None, "vocab_size": 1_203_000},
        {"num_hidden_layers": 61, "n_routed_experts": 384, "text_config": {"num_hidden_layers": 1000}},
    ],
)
def test_sizes_of_published_models_are_taken(sizes, tmp_path):
    require_sizes(sizes, tmp_path)


FIELDS: dict[str, tuple[Any, ...]] = {
    "head_dim": (0, -1, "x", 1.5),
    "vocab_size": (0, -1, 10**10),
    "rope_theta": (0, -1, "x", float("nan"), float("inf"), True),
    "num_key_value_heads": (3, "x", 0),
    "rms_norm_eps": (-1, "x", float("nan")),
    "eos_token_id": ("x", [1, {}], 10**30),
    "num_experts_per_tok": (9,),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in FIELDS.items() for value in values], ids=str
)
def test_other_fields_of_a_configuration(key, value, tmp_path):
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, key: value}
    for data in (sizes, {"text_config": sizes}):
        with pytest.raises(ModelError) as error:
            require_sizes(data, tmp_path)
        assert error.value.details["key"].removeprefix("text_config.").partition(".")[0] == key
        assert error.value.details["file"] == str(tmp_path)


def test_signature_that_does_not_fit_the_program(copy):
    with open_neff(copy / "model.neuron") as neff:
        metadata = json.loads(json.dumps(dict(neff.metadata)))
    metadata["signature"]["roles"]["decode"]["inputs"].pop()
    rewrite(copy / "model.neuron", lambda members: None, metadata=metadata)
    seal(copy)
    with raises(ArtifactError, path=str(copy / "model.neuron")) as error:
        load(copy)
    assert any("decode_" in problem for problem in error.value.details["problems"])
