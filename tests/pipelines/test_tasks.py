"""transformers' own pipeline of every task, over a compiled model and over the original: the same answers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.utils import is_torchaudio_available

from optimum_neuron import modeling, pipeline
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from optimum_neuron.pipelines import ALIASES, NOT_SERVED, PIPELINES
from tests.encoders import randomize, save_letters, save_tiny_encoder, tiny_shapes
from tests.processors import reads_text, save_encoder_processors
from tests.raising import raises

TEXT = {"batch_size": 2, "sequence_length": [8, 24], "optlevel": "1"}
RECORDING = np.random.RandomState(0).randn(900).astype("float32")
ARCHITECTURE = {
    "text-classification": "bert",
    "token-classification": "distilbert",
    "fill-mask": "roberta",
    "feature-extraction": "mpnet",
    "question-answering": "bert",
    "zero-shot-classification": "bert",
    "image-classification": "vit",
    "image-feature-extraction": "vit",
    "depth-estimation": "dpt",
    "image-segmentation": "segformer",
    "object-detection": "yolos",
    "zero-shot-image-classification": "clip",
    "audio-classification": "hubert",
    "automatic-speech-recognition": "wav2vec2",
}
"""Pipeline to an architecture that serves it."""

_INFERENCE = ["contradiction", "neutral", "entailment"]
LABELS = {"id2label": dict(enumerate(_INFERENCE)), "label2id": {name: i for i, name in enumerate(_INFERENCE)}}
"""Labels of a model that a zero-shot pipeline can use."""


def save_checkpoint(folder: Path, name: str) -> Path:
    """Write the checkpoint of a pipeline with its processors."""
    labels = LABELS if name == "zero-shot-classification" else {}
    save_tiny_encoder(folder, ARCHITECTURE[name], PIPELINES[name].name, **labels)
    return save_encoder_processors(folder, name)


def picture() -> Any:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow (pip install pillow)")
    return image.fromarray((np.random.RandomState(0).rand(50, 70, 3) * 255).astype("uint8"))


def calls(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """Arguments of a pipeline."""
    if name == "fill-mask":
        return [("ab<mask>d", {}), (["a<mask>", "long<mask>er"], {"top_k": 2})]
    if name == "zero-shot-classification":
        options = {"candidate_labels": ["cat", "a dog"], "hypothesis_template": "a {}"}
        # The second text is longer than the largest bucket.
        return [("abc", options), (["hello you", "ab" * 20], {**options, "multi_label": True, "batch_size": 3})]
    if name == "zero-shot-image-classification":
        return [(picture(), {"candidate_labels": ["cat", "a dog", "me"], "hypothesis_template": "a {}"})]
    if name == "object-detection":
        return [(picture(), {"threshold": 0.0})]
    if name.startswith(("image", "depth")):
        return [(picture(), {})]
    if name.startswith("au"):
        return [(RECORDING, {}), (RECORDING[:700], {})]
    return [("abc", {}), (["hello you", "a"], {}), (["b"] * 5, {"batch_size": 3})]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Return a function that writes the checkpoint of a pipeline, once each."""
    created: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in created:
            created[name] = save_checkpoint(tmp_path_factory.mktemp(name), name)
        return created[name]

    return make


def shapes(name: str) -> dict[str, Any]:
    is_text = reads_text(name) and "image" not in name
    return TEXT if is_text else tiny_shapes(ARCHITECTURE[name], PIPELINES[name].name)


def test_every_pipeline_is_tested():
    assert set(ARCHITECTURE) == {name for name, task in PIPELINES.items() if task.kind == "encoder"}


@pytest.mark.full(days=5)
@pytest.mark.parametrize("name", [name for name in ARCHITECTURE if name != "question-answering"])
def test_answers_match_reference_without_warnings(name, checkpoint, caplog, monkeypatch):
    folder, task = checkpoint(name), PIPELINES[name]
    inputs = calls(name)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        compiled_pipe = pipeline(name, folder, export=True, **shapes(name))
    assert not [record.getMessage() for record in caplog.records if "not supported" in record.getMessage()]
    assert type(compiled_pipe.model).__name__ == task.model_class
    parts = {kind: getattr(compiled_pipe, kind) for kind in ("tokenizer", "image_processor", "feature_extractor")}
    original = getattr(transformers, task.auto_class).from_pretrained(folder)
    reference_pipe = transformers.pipeline(name, model=original, **{k: v for k, v in parts.items() if v is not None})
    assert isinstance(compiled_pipe, type(reference_pipe))
    for arguments, options in inputs:
        assert plain(compiled_pipe(arguments, **options)) == pytest.approx(
            plain(reference_pipe(arguments, **options)), abs=1e-4
        )


def plain(answer: Any) -> Any:
    """An answer as flat numbers and text, which `approx` can compare."""
    results: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for part in value:
                walk(part)
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            results.extend(value.flatten().tolist())
        elif hasattr(value, "getdata"):
            results.extend(np.asarray(value).astype(float).flatten().tolist())
        else:
            results.append(float(value) if isinstance(value, (int, float, np.floating)) else value)

    walk(answer)
    numbers = [value for value in results if isinstance(value, float)]
    words = [value for value in results if not isinstance(value, float)]
    return {**dict(enumerate(numbers)), "words": hash(str(words))}


# Question answering, which transformers has no more.

CONTEXT = "ada wrote it in a long afternoon by the sea. nobody knew of it then."


@pytest.fixture(scope="module")
def answering(checkpoint, environment):
    return pipeline("question-answering", checkpoint("question-answering"), export=True, **TEXT)


def test_answer_is_span_of_context(answering):
    assert answering.task == "question-answering"
    answer = answering(question="who?", context=CONTEXT)
    assert set(answer) == {"score", "start", "end", "answer"}
    assert answer["answer"] == CONTEXT[answer["start"] : answer["end"]] and 0 < answer["score"] <= 1


def test_positional_and_named_arguments_agree(answering):
    answer = answering(question="who?", context=CONTEXT)
    for result in (
        answering("who?", CONTEXT),
        answering("who?", context=CONTEXT),
        answering({"question": "who?", "context": CONTEXT}),
        answering(["who?", "when?"], [CONTEXT, "ab"])[0],
    ):
        assert result == answer
    with pytest.raises(ConfigError) as excinfo:
        answering("who?", CONTEXT, question="when?")
    assert excinfo.value.details == {"question": "when?"}
    with pytest.raises(ConfigError):
        answering("who?")


def test_best_span_matches_reference(answering, checkpoint):
    """In one window, by trying every span."""
    context = "ada wrote it"
    original = transformers.AutoModelForQuestionAnswering.from_pretrained(checkpoint("question-answering")).eval()
    encoded = answering.tokenizer("who?", context, return_tensors="pt", return_offsets_mapping=True)
    spans, offsets = encoded.sequence_ids(0), encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        output = original(**encoded)
    allowed = [i for i, kind in enumerate(spans) if kind == 1]
    keep = torch.full((len(spans),), -torch.inf)
    keep[[0, *allowed]] = 0
    start, end = ((logits[0] + keep).softmax(-1) for logits in (output.start_logits, output.end_logits))
    score, i, j = max((float(start[i] * end[j]), i, j) for i in allowed for j in allowed if i <= j < i + 15)
    result = answering(question="who?", context=context)
    assert (result["start"], result["end"]) == (offsets[i][0], offsets[j][1])
    assert result["score"] == pytest.approx(score, rel=1e-4)


def test_long_contexts_are_read_in_windows_and_answers_are_ranked(answering):
    answers = answering(question="who?", context=CONTEXT, top_k=4, max_answer_len=3)
    assert len(answers) == 4 and [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)
    assert all(len(answer["answer"]) <= 3 for answer in answers)
    assert any(answer["start"] > 24 for answer in answering(question="who?", context=CONTEXT, top_k=60))

    assert len(answering(question=["who?", "when?"], context=CONTEXT)) == 2
    every = answering({"question": "who?", "context": "ab"}, top_k=20, handle_impossible_answer=True)
    assert "" in [answer["answer"] for answer in every]


@pytest.mark.parametrize("example", [{"question": "who?"}, {"question": " ", "context": "x"}, {"context": "x"}])
def test_missing_question_or_context_is_named(answering, example):
    missing = "context" if "context" not in example else "question"
    with pytest.raises(ConfigError) as error:
        answering(example)
    assert error.value.details == {"missing": [missing]}
    with pytest.raises(ConfigError) as error:
        answering(question="who?", context="x", topk=2)
    assert error.value.details == {"options": ["topk"]}


# Invalid arguments.


def test_text_longer_than_buckets_is_refused_or_truncated_by_tokenizer(checkpoint):
    run = pipeline("text-classification", checkpoint("text-classification"), export=True, **TEXT)
    with raises(ShapeError, size=42, buckets=[8, 24]):
        run("x" * 40)
    assert run("x" * 40, truncation=True) == run("x" * 22)


def test_pipeline_without_default_or_processor_is_an_error(checkpoint, tmp_path):
    with raises(ModelError, task="fill-mask"):
        pipeline("fill-mask")
    with raises(ModelError, task="mask-generation"):
        pipeline("mask-generation", tmp_path)
    folder = save_tiny_encoder(tmp_path, "vit", "image-classification")
    with raises(ModelError, auto_class="AutoImageProcessor"):
        pipeline("image-classification", folder, export=True, **tiny_shapes("vit", "image-classification"))


@pytest.mark.parametrize("content", ["", "[]", "3", "[" * 100_000])
def test_damaged_tokenizer_is_one_error(checkpoint, tmp_path, content):
    run = pipeline("text-classification", checkpoint("text-classification"), export=True, **TEXT)
    (save_letters(tmp_path) / "tokenizer_config.json").write_text(content)
    with raises(ModelError, file=str(tmp_path / "tokenizer_config.json")):
        pipeline("text-classification", run.model, tmp_path)


def test_recording_at_another_sampling_rate_is_refused(checkpoint):
    folder = checkpoint("audio-classification")
    shapes_of = shapes("audio-classification")
    slow = transformers.Wav2Vec2FeatureExtractor(sampling_rate=8000)
    with raises(ConfigError, sampling_rate=8000, expected=16000):
        pipeline("audio-classification", folder, feature_extractor=slow, export=True, **shapes_of)
    run = pipeline("audio-classification", folder, export=True, **shapes_of)
    assert len(run({"raw": RECORDING, "sampling_rate": 16_000})) == 3
    if not is_torchaudio_available():
        with raises(ConfigError, sampling_rate=44_100, expected=16_000):
            run({"array": RECORDING, "sampling_rate": 44_100})


def test_image_processor_may_be_called_feature_extractor(checkpoint):
    folder = checkpoint("image-classification")
    run = pipeline("image-classification", folder, export=True, **shapes("image-classification"))
    processor, recordings = run.image_processor, transformers.Wav2Vec2FeatureExtractor()
    for inputs in (processor, folder, str(folder)):
        pipe = pipeline("image-classification", run.model, feature_extractor=inputs)
        assert pipe(picture()) == run(picture())
    for wrong in ({"feature_extractor": recordings}, {"feature_extractor": processor, "image_processor": processor}):
        with pytest.raises(ConfigError) as excinfo:
            pipeline("image-classification", run.model, **wrong)
        assert excinfo.value.details["task"] == "image-classification"


def test_loaded_model_refuses_late_options_and_other_tasks(checkpoint):
    model = modeling.NeuronModelForMaskedLM.from_pretrained(checkpoint("fill-mask"), export=True, **TEXT)
    with raises(ConfigError, options=["sequence_length"]):
        pipeline("fill-mask", model, sequence_length=8)
    with raises(ModelError, task="text-classification", model_task="fill-mask"):
        pipeline("text-classification", model)
    assert len(pipeline("fill-mask", model, batch_size=2)(["a<mask>"] * 3)) == 3


def test_images_are_resized_to_compiled_size(checkpoint, tmp_path):
    picture()
    folder = save_tiny_encoder(tmp_path, "resnet", "image-classification")
    transformers.ViTImageProcessorPil(size={"height": 224, "width": 224}).save_pretrained(folder)
    run = pipeline("image-classification", folder, export=True, batch_size=1, height=64, width=64, optlevel="1")
    assert len(run(picture())) == 3
    assert dict(run.image_processor.size) == {"height": 64, "width": 64}


# Names.


def test_every_pipeline_of_transformers_is_known():
    from transformers.pipelines import REMOVED_TASKS, SUPPORTED_TASKS, TASK_ALIASES

    names = {ALIASES.get(name, name) for name in (*SUPPORTED_TASKS, *TASK_ALIASES, *REMOVED_TASKS)}
    assert names <= {*PIPELINES, *NOT_SERVED} and not PIPELINES.keys() & NOT_SERVED.keys()
    assert all(ALIASES[name] in {*PIPELINES, *NOT_SERVED} for name in ALIASES)


@pytest.mark.parametrize("name", [*NOT_SERVED, "text-to-speech"])
def test_pipelines_that_cannot_be_built_say_why(name, tmp_path):
    with pytest.raises(ModelError) as error:
        pipeline(name, tmp_path)
    task = ALIASES.get(name, name)
    assert error.value.details == {"task": task, "reason": NOT_SERVED[task][0]}


def test_tasks_without_a_pipeline_are_told_from_misspelt_ones(tmp_path):
    with raises(ModelError, task="keypoint-detection"):
        pipeline("keypoint-detection", tmp_path)
    with raises(ModelError, option="task", value="keypoint-detektion"):
        pipeline("keypoint-detektion", tmp_path)


# Encoder-decoders that classify, as facebook/bart-large-mnli does, transformers' default of this pipeline.


def encoder_decoder(model_type: str) -> Any:
    ids = {"vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    bart = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40} | layers
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}
    sizes = bart if model_type == "bart" else t5
    config = transformers.CONFIG_MAPPING[model_type](**ids, **sizes, **LABELS)
    return randomize(transformers.AutoModelForSequenceClassification.from_config(config))


@pytest.mark.full(days=2)
@pytest.mark.parametrize("model_type", ["bart", "t5"])
def test_zero_shot_classification_by_encoder_decoders(model_type, tmp_path):
    original = encoder_decoder(model_type)
    original.save_pretrained(tmp_path)
    run = pipeline("zero-shot-classification", save_letters(tmp_path), export=True, **TEXT)
    reference = transformers.pipeline("zero-shot-classification", model=original, tokenizer=run.tokenizer)
    for text, options in calls("zero-shot-classification"):
        assert plain(run(text, **options)) == pytest.approx(plain(reference(text, **options)), abs=1e-4)
    assert run.model(input_ids=torch.full((1, 5), 7)).logits.isnan().all()
