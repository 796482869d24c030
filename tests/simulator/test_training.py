"""Estimates of training: sizes of decoders and encoders, and errors."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.simulator import estimate_training
from optimum_neuron.simulator.work import trained_sizes
from tests.raising import raises

BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def config_of(model_type: str, architecture: str | None, **sizes):
    config = AutoConfig.for_model(model_type, **sizes)
    config.architectures = [architecture] if architecture else None
    return config


def test_encoder_is_trained_without_its_tables():
    config = config_of("bert", "BertForMaskedLM", **BERT, vocab_size=1000, max_position_embeddings=96)
    sizes = trained_sizes(config, decodes=False, sequence_length=None)
    assert (sizes.kind, sizes.num_layers, sizes.hidden, sizes.num_logits) == ("encoder", 2, 64, 1000)
    assert sizes.sequence_length == 96
    layers = 2 * (4 * 64 * 65 + 2 * 64 * 128 + 128 + 64 + 4 * 64)
    head = 64 * 65 + 2 * 64 + 64 * 1000 + 1000  # transform, norm, the tied table, its bias
    assert sizes.num_multiplied == layers + head + 2 * 64


def test_bert_large_matches_published_training_throughput():
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    report = estimate_training(config_of("bert", "BertForMaskedLM", **large), sequence_length=128, batch_size=16384)
    rate = report.quantities["sequences_per_s"]
    assert report.layout.value == "TP=1 PP=1 DP=32" and rate.low < 3827 < 1.1 * rate.high  # trn1.32xlarge, SDK 2.28
    assert rate.value == pytest.approx(3827, rel=0.2) and any("BERT-large" in note for note in report.notes)


def test_image_counts_as_patches():
    vit = config_of("vit", "ViTForImageClassification", **BERT, image_size=32, patch_size=8)
    report = estimate_training(vit, batch_size=64)
    assert "64 sequences of 17 tokens" in report.assumptions[1]
    assert report.quantities["mfu"].high / report.quantities["mfu"].low > 5
    with pytest.raises(ConfigError) as error:
        estimate_training(vit, sequence_length=128)
    assert error.value.details["patches"] == 17


def test_length_defaults_to_model_length():
    llama = config_of("llama", "LlamaForCausalLM", **BERT, vocab_size=100, max_position_embeddings=256)
    assert "sequences of 256 tokens" in estimate_training(llama).assumptions[1]
    assert "sequences of 64 tokens" in estimate_training(llama, sequence_length=64).assumptions[1]


def test_text_model_of_multimodal_model_is_trained():
    llama = config_of("llama", None, **BERT, vocab_size=100)
    llava = config_of("llava", "LlavaForConditionalGeneration", text_config=llama.to_dict())
    assert "text model alone" in estimate_training(llava).notes[-1]


def test_what_an_estimate_leaves_out_is_noted():
    llama = config_of("llama", "LlamaForCausalLM", **BERT, vocab_size=100)
    mixtral = config_of("mixtral", "MixtralForCausalLM", **BERT, vocab_size=100, num_local_experts=4)
    plain, many, dear, mixture = (
        estimate_training(model, sequence_length=64, **options)
        for model, options in (
            (llama, {}),
            (llama, {"num_instances": 2}),
            (llama, {"instance": "trn2.3xlarge"}),
            (mixtral, {}),
        )
    )
    assert plain.notes == () and "usd_per_1m_tokens" in plain.quantities
    assert any("between instances" in note for note in many.notes)
    assert "usd_per_1m_tokens" not in dear.quantities and any("price" in note for note in dear.notes)
    assert any("all experts" in note for note in mixture.notes)


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("t5", "T5ForConditionalGeneration"),
        ("whisper", "WhisperForConditionalGeneration"),
        ("resnet", "ResNetForImageClassification"),
        ("wav2vec2", "Wav2Vec2ForCTC"),
        ("swin", "SwinForImageClassification"),
    ],
)
def test_other_models_are_refused(model_type, architecture):
    with raises(ModelError, model_type=model_type):
        estimate_training(config_of(model_type, architecture))
