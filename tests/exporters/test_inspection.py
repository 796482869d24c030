from __future__ import annotations

import shutil

from optimum_neuron.errors import WeightsError
from optimum_neuron.exporters import inspect_export, main_export
from tests.raising import raises
from tests.tiny import SHAPES, tiny_config


def test_facts_of_folder(export_folder, checkpoint, model):
    facts = inspect_export(export_folder)
    assert facts["folder"] == str(export_folder) and facts["simulated"] is True
    assert facts["config"] == model.neuron_config.to_dict()
    assert facts["family"]["value"] == "llama"
    assert (facts["neff"]["target"], facts["neff"]["core_version"]) == ("inf2", 2)
    assert facts["produced_by"]["checkpoint"] == str(checkpoint)
    assert facts["weights"]["file"] == "model.safetensors"
    assert facts["weights"]["tensors"] == len(model.loaded.program.weights)
    assert [row["output"] for row in facts["validation"]] == [error.output for error in model.prepared.validation]


def test_graphs_bodies_and_memory(export_folder, model):
    facts = inspect_export(export_folder)
    graphs = {graph["name"]: graph for graph in facts["graphs"]}
    assert set(graphs) == {"prefill_16", "score_16", "prefill_48", "score_48", "decode_20", "decode_48", "extend_8"}
    assert graphs["decode_20"]["inputs"] == "input_ids int64[2, 1], position_ids int64[2, 1]"
    assert graphs["decode_20"]["outputs"] == "logits float32[2, 1, 259]"
    assert graphs["decode_20"]["calls"] > graphs["decode_48"]["distinct"], "three equal layers are one body"
    assert {body["called"] for body in facts["subprograms"]} >= {1, 3}
    assert all(body["operators"] > 0 for body in facts["subprograms"])
    memory = facts["hbm_bytes"]
    assert memory["total"] == sum(memory[name] for name in ("weights", "kv_cache", "scratch", "code"))
    assert memory["total"] == model.loaded.need.total
    assert memory["available"] == 16 * 2**30


def test_weights_inside_neff(checkpoint, tmp_path):
    main_export(checkpoint, tmp_path, inline_weights_to_neff=True, disable_validation=True, **SHAPES)
    facts = inspect_export(tmp_path)
    assert facts["weights"]["file"] is None and facts["weights"]["size_bytes"] > 0
    assert "weights.safetensors" in {member["name"] for member in facts["neff"]["members"]}


def test_program_without_weights(tmp_path):
    tiny_config("llama", vocab_size=259, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path / "config")
    main_export(tmp_path / "config", tmp_path / "out", **SHAPES)
    facts = inspect_export(tmp_path / "out")
    assert facts["weights"] == {"file": None, "size_bytes": 0, "sha256": None, "tensors": 21}
    assert facts["validation"] == []


def test_damage_is_refused(export_folder, tmp_path):
    folder = shutil.copytree(export_folder, tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    with raises(WeightsError, folder=str(folder), missing="model.safetensors"):
        inspect_export(folder)
