"""Programs of models in memory as single files, which are compared with transformers."""

from __future__ import annotations

import logging

import pytest
import torch
import transformers

from optimum_neuron.errors import ModelError, ValidationError
from tests.encoders import save_letters, save_tiny_encoder

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = transformers.BertConfig(**SIZES, vocab_size=40, max_position_embeddings=32)
IMAGE = transformers.ViTConfig(**SIZES, image_size=16, patch_size=8)
BOXES = transformers.YolosConfig(**SIZES, image_size=[16, 16], patch_size=8, num_detection_tokens=3)
OPTIONS = {"optlevel": "1", "auto_cast": None}


def exported(model, task, shapes, folder):
    from optimum.exporters.neuron import export
    from optimum.exporters.neuron.model_configs import register_in_tasks_manager
    from optimum.exporters.tasks import TasksManager

    assert register_in_tasks_manager is not None  # it registers the architectures
    constructor = TasksManager.get_exporter_config_constructor(
        "neuron", model=model, task=task, library_name="transformers"
    )
    config = constructor(model.config, input_shapes=shapes)
    file = folder / "parts" / "model.neuron"
    return config, file, export(model, config, file, **OPTIONS)


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("config", "task", "shapes"),
    [
        (TEXT, "multiple-choice", {"batch_size": 2, "num_choices": 3, "sequence_length": 8}),
        (IMAGE, "feature-extraction", {"batch_size": 2, "num_channels": 3, "height": 64, "width": 64}),
        (BOXES, "object-detection", {"batch_size": 2, "num_channels": 3, "height": 16, "width": 16}),
    ],
    ids=["text", "images of the model's own size", "outputs in another order than their names"],
)
def test_file_agrees_with_transformers(config, task, shapes, tmp_path, caplog):
    from optimum.exporters.neuron import validate_model_outputs

    torch.manual_seed(0)
    auto = {
        "multiple-choice": transformers.AutoModelForMultipleChoice,
        "object-detection": transformers.AutoModelForObjectDetection,
    }
    model = auto.get(task, transformers.AutoModel).from_config(config).eval()
    export_config, file, (inputs, outputs) = exported(model, task, shapes, tmp_path)
    script = torch.jit.load(str(file))
    if "input_ids" in inputs:
        tensors = {name: torch.ones(2, 3, 8, dtype=torch.long) for name in inputs}
    else:
        tensors = {name: torch.ones(2, 3, 16, 16) for name in inputs}
    with torch.no_grad():
        expected = model(**tensors)
    for name, actual in zip(outputs, script(*tensors.values()), strict=True):
        torch.testing.assert_close(actual, expected[name], atol=1e-3, rtol=1e-3)
    script.close()
    with caplog.at_level(logging.INFO):
        validate_model_outputs(export_config, model, file, outputs)
    assert {record.levelname for record in caplog.records if "difference" in record.message} == {"INFO"}


def test_shapes_of_optimum_are_known():
    from optimum.neuron.utils import InputShapesArguments
    from optimum.utils import DEFAULT_DUMMY_SHAPES

    assert DEFAULT_DUMMY_SHAPES.items() <= vars(InputShapesArguments(**DEFAULT_DUMMY_SHAPES)).items()


def test_validation_tells_another_model(tmp_path, caplog):
    from optimum.exporters.neuron import validate_model_outputs

    model = transformers.AutoModelForSequenceClassification.from_config(TEXT)
    config, file, (_, outputs) = exported(
        model, "text-classification", {"batch_size": 1, "sequence_length": 8}, tmp_path
    )
    other = transformers.AutoModelForSequenceClassification.from_config(TEXT)
    validate_model_outputs(config, other, file, outputs, atol=1e-6)
    assert [record.levelname for record in caplog.records if "difference" in record.message] == ["WARNING"]
    more = transformers.BertConfig(**{**TEXT.to_dict(), "num_labels": 5})
    with pytest.raises(ValidationError) as excinfo:
        validate_model_outputs(config, transformers.AutoModelForSequenceClassification.from_config(more), file, outputs)
    assert excinfo.value.details["outputs"] == ["logits"]


def test_models_with_their_configurations(tmp_path):
    from optimum.exporters.neuron import export_models, validate_models_outputs
    from optimum.exporters.neuron.__main__ import get_submodels_and_neuron_configs

    model = transformers.AutoModelForMaskedLM.from_config(TEXT)
    shapes = {"batch_size": 1, "sequence_length": 8}
    parts, files = get_submodels_and_neuron_configs(model, shapes, "fill-mask", tmp_path)
    _, outputs = export_models(parts, "fill-mask", tmp_path, files, compiler_kwargs=OPTIONS)
    assert (tmp_path / "model.neuron").is_file()
    assert list(outputs.values()) == [["logits"]]
    validate_models_outputs(parts, outputs, tmp_path, neuron_files_subpaths=files)


def test_sentences_are_their_transformer_alone(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="a package of the recipes")
    from optimum.exporters.neuron import export, validate_model_outputs
    from optimum.exporters.neuron.config import TextEncoderNeuronConfig

    save_letters(save_tiny_encoder(tmp_path / "bert", "bert", "feature-extraction"))
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "bert"), device="cpu")
    config = TextEncoderNeuronConfig(model[0].auto_model.config, batch_size=1, sequence_length=8)
    _, outputs = export(model, config, tmp_path / "model.neuron", **OPTIONS)
    assert outputs == ["last_hidden_state", "pooler_output"]
    validate_model_outputs(config, model, tmp_path / "model.neuron", outputs)


def test_models_of_several_programs_are_refused(tmp_path):
    from optimum.exporters.neuron.__main__ import get_submodels_and_neuron_configs

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 40}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ModelError) as excinfo:
        get_submodels_and_neuron_configs(
            model, {"batch_size": 1, "sequence_length": 8}, "text2text-generation", tmp_path
        )
    assert excinfo.value.details["task"] == "text2text-generation"
