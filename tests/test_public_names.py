"""The public names cannot change by accident, and each of them can be imported."""

from __future__ import annotations

import importlib

import pytest

import optimum_neuron
from tests import warm

PUBLIC = [
    "NeuronAudioTextConfig", "NeuronConfig", "NeuronDiffusionConfig", "NeuronDiffusionPipeline",
    "NeuronDiffusionPipelineBase", "NeuronEncoderConfig", "NeuronImageTextConfig",
    "NeuronModelForAudioClassification", "NeuronModelForAudioFrameClassification", "NeuronModelForCTC",
    "NeuronModelForCausalLM", "NeuronModelForDepthEstimation", "NeuronModelForEmbedding",
    "NeuronModelForFeatureExtraction", "NeuronModelForImageClassification", "NeuronModelForImageTextToText",
    "NeuronModelForMaskedLM", "NeuronModelForMultimodalLM", "NeuronModelForMultipleChoice",
    "NeuronModelForObjectDetection", "NeuronModelForQuestionAnswering",
    "NeuronModelForSemanticSegmentation", "NeuronModelForSeq2SeqLM", "NeuronModelForSequenceClassification",
    "NeuronModelForSpeechSeq2Seq", "NeuronModelForTextReranking", "NeuronModelForTokenClassification",
    "NeuronModelForXVector", "NeuronModelForZeroShotImageClassification", "NeuronSentenceTransformer",
    "NeuronSeq2SeqConfig", "NeuronSpeechSeq2SeqConfig", "NeuronTracedModel", "NeuronTrainer",
    "NeuronTrainingArguments", "NeuronWhisperForConditionalGeneration", "Seq2SeqNeuronTrainer",
    "Seq2SeqNeuronTrainingArguments", "__version__", "check_model", "main_export", "pipeline", "suggest_buckets",
]  # fmt: skip

EXPORTING = [
    "optimum_neuron", "optimum_neuron.buckets", "optimum_neuron.checking", "optimum_neuron.checkpoints",
    "optimum_neuron.compiler.cache", "optimum_neuron.compiler.neff", "optimum_neuron.errors",
    "optimum_neuron.exporters", "optimum_neuron.hardware", "optimum_neuron.modeling", "optimum_neuron.models",
    "optimum_neuron.pipelines", "optimum_neuron.profiling", "optimum_neuron.runtime",
    "optimum_neuron.simulator", "optimum_neuron.simulator.work",
    "optimum_neuron.tracing", "optimum_neuron.trainer", "optimum_neuron.trainer.post_training",
    "optimum_neuron.weights",
]  # fmt: skip
"""Modules with an `__all__` that users import from."""


TRAINING = [
    "NeuronDPOConfig", "NeuronDPOTrainer", "NeuronGRPOConfig", "NeuronGRPOTrainer", "NeuronORPOConfig",
    "NeuronORPOTrainer", "NeuronRewardConfig", "NeuronRewardTrainer", "NeuronSFTConfig", "NeuronSFTTrainer",
]  # fmt: skip
"""Names that need the extra `training`: no `import *` brings them."""

DIFFUSION = [
    "NeuronDDIMPipeline", "NeuronDDPMPipeline", "NeuronFluxImg2ImgPipeline", "NeuronFluxInpaintPipeline",
    "NeuronFluxKontextPipeline", "NeuronFluxPipeline", "NeuronLTXPipeline",
    "NeuronLatentConsistencyModelPipeline", "NeuronPixArtAlphaPipeline", "NeuronPixArtSigmaPipeline",
    "NeuronStableDiffusion3Img2ImgPipeline", "NeuronStableDiffusion3InpaintPipeline",
    "NeuronStableDiffusion3Pipeline", "NeuronStableDiffusionControlNetPipeline",
    "NeuronStableDiffusionImg2ImgPipeline", "NeuronStableDiffusionInpaintPipeline",
    "NeuronStableDiffusionInstructPix2PixPipeline", "NeuronStableDiffusionPipeline",
    "NeuronStableDiffusionXLControlNetPipeline", "NeuronStableDiffusionXLImg2ImgPipeline",
    "NeuronStableDiffusionXLInpaintPipeline", "NeuronStableDiffusionXLPipeline",
]  # fmt: skip
"""Names that need the extra `diffusers`, likewise."""


def test_names_are_pinned_and_sorted():
    assert sorted(optimum_neuron.__all__) == optimum_neuron.__all__ == PUBLIC


def test_names_from_extras_are_pinned():
    assert list(optimum_neuron.TRAINING_NAMES) == TRAINING
    pytest.importorskip("trl")
    assert all(getattr(optimum_neuron, name).__name__ == name for name in TRAINING)


def test_names_of_diffusion_pipelines_are_pinned():
    assert list(optimum_neuron.DIFFUSION_NAMES) == DIFFUSION
    pytest.importorskip("diffusers")
    assert all(getattr(optimum_neuron, name).__name__ == name for name in DIFFUSION)


def test_dir_lists_them():
    assert {*PUBLIC, *TRAINING, *DIFFUSION} <= set(dir(optimum_neuron))
    assert dir(optimum_neuron) == sorted(dir(optimum_neuron))


@pytest.mark.parametrize("module", EXPORTING)
def test_every_listed_name_exists_and_list_is_sorted(module):
    result = importlib.import_module(module)
    assert list(result.__all__) == sorted(result.__all__)
    assert len(set(result.__all__)) == len(result.__all__)
    for name in result.__all__:
        assert getattr(result, name) is not None


@pytest.mark.parametrize("module", ["optimum_neuron", "optimum_neuron.exporters", "optimum_neuron.modeling"])
def test_unknown_name_is_attribute_error(module):
    with pytest.raises(AttributeError, match="NoSuchName"):
        importlib.import_module(module).NoSuchName  # noqa: B018


def test_star_import_imports_every_name():
    program = "from optimum_neuron import *; print(sorted(n for n in dir() if not n.startswith('__')))"
    result = warm.run("-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str([name for name in PUBLIC if not name.startswith("__")])
