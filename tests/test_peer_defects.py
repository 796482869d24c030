"""Defects that users of such exporters have met elsewhere, each with a test that this package does not have it.

More of them are tested where the code is: the order of encoded sentences in `modeling/test_sentences.py`, the class
of object detection in `pipelines/test_tasks.py`, stale weights and the task of a local folder in
`modeling/test_traced.py`.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys

import pytest
import torch
import transformers

from optimum_neuron import (
    NeuronModelForAudioClassification,
    NeuronModelForImageClassification,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification,
    NeuronSentenceTransformer,
    main_export,
    pipeline,
)
from optimum_neuron.errors import ConfigError, ShapeError
from tests.encoders import IMAGE, VOCABULARY, randomize, save_letters, save_tiny_encoder
from tests.raising import raises
from tests.seq2seq import save_tiny_seq2seq

SHAPES = {"batch_size": 2, "sequence_length": 8, "optlevel": "1"}
IDS = torch.randint(3, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(1))


compile_bert = functools.partial(NeuronModelForSequenceClassification.from_pretrained, export=True, **SHAPES)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder's name; with $(words) of a shell") / "it's bert"
    return save_letters(save_tiny_encoder(folder, "bert", "text-classification"))


@pytest.fixture(scope="module")
def model(checkpoint, environment):
    return compile_bert(checkpoint)


def test_host_without_device_gets_a_model(model):
    assert isinstance(model, NeuronModelForSequenceClassification) and model(IDS).logits.shape == (3, 3)


def test_another_revision_has_its_own_weights(checkpoint, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--acme--bert"
    (repository / "refs").mkdir(parents=True)
    originals = {}
    for seed, branch in enumerate(("main", "tuned")):
        commit = f"{seed}" * 40
        (repository / "refs" / branch).write_text(commit)
        originals[branch] = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
        randomize(originals[branch], seed=seed + 3)
        originals[branch].save_pretrained(repository / "snapshots" / commit)
    for branch, original in originals.items():
        compiled_model = compile_bert("acme/bert", revision=branch)
        with torch.no_grad():
            torch.testing.assert_close(compiled_model(IDS).logits, original(IDS).logits, atol=1e-5, rtol=1e-5)
    assert compiled_model.describe()["cache"]["value"] == "hit"


def test_saved_dynamic_batch_is_still_one_and_its_weights_can_be_replaced(checkpoint, tmp_path):
    compiled_model = compile_bert(checkpoint, dynamic_batch_size=True)
    compiled_model.save_pretrained(tmp_path)
    loaded_model = NeuronModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded_model.neuron_config.dynamic_batch_size and not loaded_model.neuron_config.inline_weights_to_neff
    loaded_model.replace_weights(checkpoint)
    assert torch.equal(loaded_model(IDS).logits, compiled_model(IDS).logits)


def test_message_of_wrong_shape_has_numbers_and_no_placeholders(model):
    with pytest.raises(ShapeError) as excinfo:
        model(torch.full((1, 9), 5))
    assert "sequence_length=9" in str(excinfo.value) and not re.search("[{}]", str(excinfo.value))


def test_default_prompt_of_sentence_model_is_used(tmp_path):
    folder = save_letters(save_tiny_encoder(tmp_path, "bert", "feature-extraction"))
    text = {"prompts": {"query": "q "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(text))
    model = NeuronSentenceTransformer.from_pretrained(folder, export=True, **SHAPES)
    with_it = model.encode("a b", convert_to_tensor=True)
    assert torch.equal(with_it, model.encode("a b", prompt="q ", convert_to_tensor=True))
    assert not torch.allclose(with_it, model.encode("a b", prompt="", convert_to_tensor=True))


def test_images_and_recordings_have_default_sizes(tmp_path):
    images = save_tiny_encoder(tmp_path / "vit", "vit", "image-classification")
    vit = NeuronModelForImageClassification.from_pretrained(images, export=True, optlevel="1")
    assert vit.input_static_shapes == {"batch_size": 1, "num_channels": 3, "height": IMAGE, "width": IMAGE}
    sounds = save_tiny_encoder(tmp_path / "wav2vec2", "wav2vec2", "audio-classification")
    with raises(ConfigError, option="sequence_length", value=128):
        NeuronModelForAudioClassification.from_pretrained(sounds, export=True, sequence_length=128, optlevel="1")


def test_command_line_and_python_have_same_defaults(cli, checkpoint, tmp_path):
    result = cli("export", "neuron", "-m", str(checkpoint), "-O1", str(tmp_path / "by shell"))
    assert result.code == 0, result.stderr
    main_export(checkpoint, tmp_path / "by python", optlevel="1")
    by_shell, by_python = (
        json.loads((tmp_path / name / "neuron_config.json").read_text())["neuron"] for name in ("by shell", "by python")
    )
    assert by_shell == by_python


def test_path_with_shell_characters_is_a_path(cli, checkpoint, tmp_path):
    output = tmp_path / "out; touch $(echo owned) 'x'"
    words = ["--batch_size", "1", "--sequence_length", "8", "-O1"]
    result = cli("export", "neuron", "-m", str(checkpoint), *words, str(output))
    assert result.code == 0 and (output / "neuron_config.json").is_file()
    assert not list(tmp_path.glob("owned*")) and not os.path.exists("owned")


@pytest.mark.full(days=3)
def test_encoder_decoders_are_not_rounded_by_default(tmp_path):
    folder = save_tiny_seq2seq(tmp_path, "t5")
    model = NeuronModelForSeq2SeqLM.from_pretrained(
        folder, export=True, sequence_length=8, decoder_sequence_length=4, optlevel="1"
    )
    assert (model.neuron_config.auto_cast, model.neuron_config.torch_dtype) == ("none", "float32")


@pytest.mark.parametrize("option", ["num_cores", "tensor_parallel_size", "file_name", "input_shapes"])
def test_no_option_is_silently_ignored(checkpoint, option):
    with pytest.raises(ConfigError) as error:
        NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **{option: True})
    details = error.value.details
    assert option.replace("num_cores", "tensor_parallel_size") in details.get("options", [details.get("option")])


def test_pipeline_of_local_folder_needs_no_task_in_its_model(checkpoint):
    result = pipeline("text-classification", checkpoint, export=True, **SHAPES)("a b")
    assert {"label", "score"} == set(result[0])


@pytest.mark.full(days=6)
def test_import_and_export_leave_torch_and_environment_unchanged(tmp_path):
    code = f"""
import os, torch
before = (torch.nn.functional.scaled_dot_product_attention, torch.nn.Linear.forward, dict(os.environ))
import optimum_neuron
from tests.encoders import save_tiny_encoder
folder = save_tiny_encoder({str(tmp_path)!r}, "bert", "fill-mask")
optimum_neuron.NeuronModelForMaskedLM.from_pretrained(folder, export=True, sequence_length=8, optlevel="1")
after = (torch.nn.functional.scaled_dot_product_attention, torch.nn.Linear.forward, dict(os.environ))
assert before[:2] == after[:2], "torch was changed"
changed = {{key for key in before[2].keys() | after[2].keys() if before[2].get(key) != after[2].get(key)}}
print(sorted(changed))
"""
    many_cores = os.environ | {"OPTIMUM_NEURON_INSTANCE": "inf2.48xlarge"}  # other tests hold cores of a small instance
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=many_cores)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"
