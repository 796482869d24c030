"""Pipelines: of a checkpoint, a loaded model, and an exported folder; one for each task."""

import numpy as np
import pytest
import transformers
from optimum.neuron import NeuronModelForQuestionAnswering, NeuronModelForSequenceClassification, pipeline
from PIL import Image
from transformers import (
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoModelForAudioClassification,
    AutoModelForImageClassification,
    AutoModelForObjectDetection,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8))
recording = np.random.default_rng(0).standard_normal(900, dtype=np.float32)
input_shapes = {"batch_size": 1, "sequence_length": 64}
compiler_args = {"auto_cast": "none", "auto_cast_type": "bf16"}


def close(found, expected):
    """Compare labels, and scores up to rounding."""
    assert len(found) == len(expected)
    for actual, reference in zip(found, expected, strict=True):
        assert actual.keys() == reference.keys() and actual.get("label") == reference.get("label")
        assert actual["score"] == pytest.approx(reference["score"], abs=1e-4)


# Sentiment: shapes by name, in a mapping, and compiled before.
model_id = "acme/bert-sentiment"
tokenizer = AutoTokenizer.from_pretrained(model_id)
original = AutoModelForSequenceClassification.from_pretrained(model_id)
expected = transformers.pipeline("text-classification", model=original, tokenizer=tokenizer)("a joy to see.")
close(pipeline("text-classification", model_id, export=True, **input_shapes)("a joy to see."), expected)
classify = pipeline(
    task="sentiment-analysis", model=model_id, export=True, input_shapes=input_shapes, compiler_args=compiler_args
)
close(classify("a joy to see."), expected)
model = NeuronModelForSequenceClassification.from_pretrained(model_id, export=True, **input_shapes)
close(pipeline("text-classification", model=model, tokenizer=tokenizer)("a joy to see."), expected)
model.save_pretrained("sentiment_neuron")
tokenizer.save_pretrained("sentiment_neuron")
close(pipeline("text-classification", "sentiment_neuron", use_fast=True)("a joy to see."), expected)

# Entities, masked words, and features.
model_id = "acme/bert-ner"
original = AutoModelForTokenClassification.from_pretrained(model_id)
expected = transformers.pipeline("token-classification", model=original, tokenizer=tokenizer)("ada in london")
close(pipeline("token-classification", model_id, export=True, input_shapes=input_shapes)("ada in london"), expected)
fill = pipeline("fill-mask", "acme/bert-masked", export=True, **input_shapes)
assert len(fill(f"a {fill.tokenizer.mask_token} case.")) == 5
features = pipeline("feature-extraction", "acme/bert", export=True, **input_shapes)
assert np.asarray(features("a case")).shape == (1, 8, 32)

# Answers to questions, by name and by position.
model = NeuronModelForQuestionAnswering.from_pretrained("acme/bert-squad", export=True, **input_shapes)
answer = pipeline("question-answering", model=model, tokenizer=tokenizer)
question, context = "who wrote it?", "ada wrote it by the sea."
found = answer(question=question, context=context)
assert found == answer(question, context) and found["answer"] == context[found["start"] : found["end"]]

# Images, as objects and as files.
original = AutoModelForImageClassification.from_pretrained("acme/vit")
preprocessor = AutoImageProcessor.from_pretrained("acme/vit")
expected = transformers.pipeline("image-classification", model=original, image_processor=preprocessor)(image)
classify = pipeline("image-classification", "acme/vit", export=True, input_shapes={"batch_size": 1})
close(classify(image), expected)
image.save("image.png")
close(pipeline("image-classification", model=classify.model, feature_extractor=preprocessor)("image.png"), expected)
original = AutoModelForObjectDetection.from_pretrained("acme/yolos")
preprocessor = AutoImageProcessor.from_pretrained("acme/yolos")
expected = transformers.pipeline("object-detection", model=original, image_processor=preprocessor)
detect = pipeline("object-detection", "acme/yolos", export=True, batch_size=1)
close(detect(image, threshold=0.0), expected(image, threshold=0.0))
segment = pipeline("image-segmentation", "acme/segformer", export=True, batch_size=1, height=64, width=64)
assert {part["mask"].size for part in segment(image)} == {image.size}

# Recordings.
original = AutoModelForAudioClassification.from_pretrained("acme/hubert-keywords")
extractor = AutoFeatureExtractor.from_pretrained("acme/hubert-keywords")
expected = transformers.pipeline("audio-classification", model=original, feature_extractor=extractor)(recording)
shapes = {"batch_size": 1, "audio_sequence_length": 1200}
close(pipeline("audio-classification", "acme/hubert-keywords", export=True, input_shapes=shapes)(recording), expected)
transcribe = pipeline("automatic-speech-recognition", "acme/wav2vec2-ctc", export=True, **shapes)
assert transcribe({"array": recording, "sampling_rate": 16_000})["text"]

# An exported folder cannot be exported, and a checkpoint is not one.
for name, export in [("sentiment_neuron", True), ("acme/bert-sentiment", False)]:
    with pytest.raises(Exception, match="export"):
        pipeline("text-classification", name, export=export, **input_shapes)
