"""A configuration alone is enough: one architecture of each kind that this package lists, with the kind's intervals."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from optimum_neuron.simulator import estimate
from tests.encoders import tiny_encoder_config
from tests.tiny import CONFIGS

KINDS = {
    "mixtral": ("MixtralForCausalLM", "mixture"),
    "gpt2": ("GPT2LMHeadModel", "decoder"),
    "distilbert": ("DistilBertForTokenClassification", "encoder"),
    "bert": ("BertForMultipleChoice", "encoder"),
    "swin": ("SwinForImageClassification", "vit"),
    "resnet": ("ResNetModel", "cnn"),
    "detr": ("DetrForObjectDetection", "graph"),
    "clip": ("CLIPModel", "graph"),
    "wav2vec2": ("Wav2Vec2ForCTC", "graph"),
}


@pytest.mark.parametrize("model_type", KINDS)
def test_a_configuration_is_enough(model_type):
    architecture, kind = KINDS[model_type]
    decodes = model_type in CONFIGS
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type]) if decodes else tiny_encoder_config(model_type)
    config.architectures = [architecture]
    told = estimate(config, instance="trn1.32xlarge")
    assert told.kind == kind and not told.unknown
    assert 0 < told.latency_ms.low < told.latency_ms.value < told.latency_ms.high and told.usd_per_1m.value > 0
