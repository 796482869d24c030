"""Every model type of transformers is configured from its default configuration, or refused by its name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import CONFIG_MAPPING

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import neuron_config
from optimum_neuron.kinds import kind_of
from optimum_neuron.kinds.multimodal.audio import NeuronAudioTextConfig
from optimum_neuron.models import without_weights
from optimum_neuron.sources import architectures_of, find_task, load_source

GENERATING = ("any-to-any", "image-text-to-text", "text2text-generation", "automatic-speech-recognition")
NOT_WRITTEN = ("gemma4_assistant",)
"""transformers' own default configuration is refused by transformers."""


def outcome(model_type, task, folder):
    """The configuration of a model, or the model type that an error names."""
    CONFIG_MAPPING[model_type]().save_pretrained(folder)
    try:
        return neuron_config(load_source(folder, with_weights=False), {"task": task})[0]
    except ModelError as error:
        return error.details["model_type"]
    except ConfigError as error:
        return error.details["option"]  # its own image size does not fit


@pytest.mark.full(days=5)
@pytest.mark.parametrize("task", [*GENERATING, "text-generation"])
def test_every_model_type_is_configured_or_refused_by_name(task, tmp_path):
    types = [name for name in architectures_of(task) if name in CONFIG_MAPPING and name not in NOT_WRITTEN]
    for model_type in (name for name in types if find_task(task, name).kind != "encoder"):
        result = outcome(model_type, task, tmp_path / model_type)
        text = CONFIG_MAPPING[model_type]().get_text_config(decoder=True).model_type
        expected = (model_type, text, "image_size")
        assert isinstance(result, kind_of(task, model_type).config_class) or result in expected, model_type


def test_audio_architectures_are_recognized_before_their_sizes_are_read(tmp_path):
    results = {name: outcome(name, "any-to-any", tmp_path / name) for name in ("granite_speech", "glmasr", "voxtral")}
    assert results.pop("granite_speech") == "granite_speech" and results.pop("glmasr") == "glmasr"
    assert isinstance(results["voxtral"], NeuronAudioTextConfig)


def test_default_configurations_that_transformers_cannot_build_are_refused(tmp_path):
    assert outcome("cohere_compass_text", "feature-extraction", tmp_path) == "cohere_compass_text"


def test_parameters_larger_than_memory_have_shapes():
    with without_weights():
        layer = nn.Module()
        layer.experts = nn.Parameter(torch.empty(2**16, 2**15, 2**15))
        layer.table = nn.Buffer(torch.arange(4.0), persistent=False)
    assert layer.experts.is_meta and layer.experts.shape == (2**16, 2**15, 2**15)
    assert layer.table.tolist() == [0, 1, 2, 3]
