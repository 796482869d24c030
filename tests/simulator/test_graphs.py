"""Classes of models of one forward: narrow intervals only where published values were compared."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from optimum_neuron.simulator import estimate, kind_of_graph
from optimum_neuron.simulator.work import Attention, GraphWork, Step, Work
from tests.encoders import tiny_encoder_config
from tests.tiny import CONFIGS

PRODUCT = Step(name="aten.linear", work=Work(product_flops=100))
CONVOLUTION = Step(name="aten.conv2d", work=Work(product_flops=10))
SOUND = Step(name="aten.conv1d", work=Work(product_flops=1))
ITSELF, OTHERS = (
    Step(name="attention", work=Work(product_flops=1), attends=Attention(num_rows=1, num_heads=1, queries=4, keys=keys))
    for keys in (4, 8)
)


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("steps", "task", "kind"),
    [
        ((CONVOLUTION,), "image-classification", "cnn"),
        ((CONVOLUTION,), None, "cnn"),
        ((CONVOLUTION, ITSELF), "depth-estimation", "vit"),
        ((CONVOLUTION, PRODUCT), "image-classification", "graph"),
        ((CONVOLUTION, PRODUCT, ITSELF), "feature-extraction", "vit"),
        ((PRODUCT, ITSELF), "feature-extraction", "encoder"),
        ((PRODUCT, ITSELF, OTHERS), "fill-mask", "graph"),
        ((PRODUCT,), "fill-mask", "graph"),
        ((PRODUCT, ITSELF), "audio-classification", "graph"),
        ((PRODUCT, ITSELF, SOUND), "feature-extraction", "graph"),
        ((PRODUCT, ITSELF), None, "graph"),
    ],
)
def test_unvalidated_models_are_graphs(steps, task, kind):
    assert kind_of_graph(GraphWork(name="forward", steps=steps), task) == kind


ARCHITECTURES = {
    "MixtralForCausalLM": ("mixtral", "mixture"),
    "GPT2LMHeadModel": ("gpt2", "decoder"),
    "DistilBertForTokenClassification": ("distilbert", "encoder"),
    "BertForMultipleChoice": ("bert", "encoder"),
    "SwinForImageClassification": ("swin", "vit"),
    "ViTModel": ("vit", "vit"),
    "ResNetModel": ("resnet", "cnn"),
    "SegformerForImageClassification": ("segformer", "graph"),  # attends to fewer tokens than there are
    "DetrForObjectDetection": ("detr", "graph"),
    "CLIPModel": ("clip", "graph"),
    "Wav2Vec2ForCTC": ("wav2vec2", "graph"),
}
"""One architecture of each kind, with its intervals: intervals of graphs are wide, and say so."""


@pytest.mark.full(days=5)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_configuration_is_enough(architecture):
    model_type, kind = ARCHITECTURES[architecture]
    decodes = model_type in CONFIGS
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type]) if decodes else tiny_encoder_config(model_type)
    config.architectures = [architecture]
    report = estimate(config, instance="trn1.32xlarge")
    assert report.kind == kind and not report.unknown
    assert 0 < report.latency_ms.low < report.latency_ms.value < report.latency_ms.high and report.usd_per_1m.value > 0
    wide = report.latency_ms.high / report.latency_ms.low > 3
    assert wide == (kind in ("graph", "mixture")) == any("intervals are wide" in note for note in report.notes)


def test_perceiver_is_graph():
    sizes = {"num_latents": 8, "d_latents": 16, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 1}
    heads = {"num_self_attention_heads": 2, "num_cross_attention_heads": 2, "vocab_size": 50}
    config = AutoConfig.for_model("perceiver", **sizes, **heads, max_position_embeddings=32)
    config.architectures = ["PerceiverForSequenceClassification"]
    assert estimate(config, instance="inf2.xlarge", sequence_length=32).kind == "graph"
