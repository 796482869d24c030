"""`optimum-cli neuron models`, and exports of other tasks from the command line."""

from __future__ import annotations

from optimum_neuron.sources import COMPARED, read_support
from tests.encoders import save_letters, save_tiny_encoder


def test_matrix_matches_test_list(cli):
    result = cli("neuron", "models", "--json")
    listed = read_support()
    assert result.code == 0
    assert {row["architecture"]: row["compared"] for row in result.json["models"]} == {
        name: [task for task, outcome in tasks.items() if outcome == COMPARED] for name, tasks in listed.items()
    }
    assert {"llama", "bert", "vit", "wav2vec2", "clip", "detr"} <= set(listed)


def test_table_for_people_and_names_for_scripts(cli):
    result = cli("neuron", "models", "--task", "object-detection")
    assert "detr" in result.stdout and "yolos" in result.stdout and "bert" not in result.stdout
    assert cli("neuron", "models", "--task", "object-detection", "--quiet").stdout.split() == ["yolos", "detr"]


def test_unknown_task_names_nearest(cli):
    result = cli("neuron", "models", "--task", "object-detektion")
    assert result.code == 1 and "did you mean 'object-detection'?" in result.stderr


def test_encoder_is_exported_with_its_task_inferred_and_inspected(cli, tmp_path):
    folder = save_letters(save_tiny_encoder(tmp_path / "bert", "bert", "text-classification"))
    out = tmp_path / "out"
    words = ["-m", str(folder), str(out), "--batch_size", "1,2", "--sequence_length", "8,16", "-O1", "--json"]
    result = cli("export", "neuron", *words)
    assert result.code == 0, result.stderr
    assert result.json["task"]["value"] == "text-classification"
    graphs = [f"forward_{batch}_{length}" for batch in (1, 2) for length in (8, 16)]
    assert [graph["name"] for graph in result.json["graphs"]] == graphs
    assert (out / "tokenizer.json").is_file()
    assert cli("neuron", "inspect", str(out), "--json").json["config"]["sequence_length"] == [8, 16]


def test_sizes_of_images_and_switches(cli, tmp_path):
    folder = save_tiny_encoder(tmp_path / "resnet", "resnet", "image-classification")
    words = ["--height", "32,64", "--width", "64", "--dynamic-batch-size", "--output_hidden_states", "-O1", "--json"]
    config = cli("export", "neuron", "-m", str(folder), str(tmp_path / "out"), *words).json["config"]
    assert (config["height"], config["width"]) == ([32, 64], 64)
    assert config["dynamic_batch_size"] and config["output_hidden_states"] and not config["output_attentions"]


def test_unsupported_size_is_refused(cli, tmp_path):
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "fill-mask")
    result = cli("export", "neuron", "-m", str(folder), str(tmp_path / "out"), "--height", "32", "-O1")
    assert result.code == 1 and "height=32" in result.stderr
