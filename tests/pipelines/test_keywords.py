"""transformers' own pipelines of an exported folder with every keyword that they document: the original's answers.

`timeout` is not here, because it is for images that are downloaded.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import transformers

from optimum_neuron import modeling
from optimum_neuron.pipelines import PIPELINES
from tests.pipelines.test_tasks import ARCHITECTURE, RECORDING, picture, plain, save_checkpoint, shapes

TEXT_KEYWORDS = {
    "text-classification": [
        ("abc", {"top_k": None}),
        (["abc", "a"], {"top_k": 2, "batch_size": 2}),
        ("abc", {"function_to_apply": "sigmoid"}),
        ("abc", {"function_to_apply": "none", "top_k": 1}),
        ({"text": "abc", "text_pair": "de"}, {}),
        ("abc" * 20, {"truncation": True, "max_length": 24, "padding": "max_length"}),
    ],
    "token-classification": [
        ("ab c", {"aggregation_strategy": strategy, "ignore_labels": []})
        for strategy in ("none", "simple", "first", "average", "max")
    ]
    + [
        ("ab c", {"ignore_labels": ["LABEL_0"]}),
        (["ab", "c"], {"is_split_into_words": True, "delimiter": " "}),
        (["ab c", "d"], {"batch_size": 2}),
    ],
    "fill-mask": [
        ("ab<mask>d", {"top_k": 3}),
        ("ab<mask>d", {"targets": ["a", "b"]}),
        ("ab<mask>d" * 6, {"tokenizer_kwargs": {"truncation": True, "max_length": 24}}),
        ("a<mask>b<mask>", {"top_k": 2}),
        (["ab<mask>d", "<mask>"], {"batch_size": 2}),
    ],
    "zero-shot-classification": [
        ("abc", {"candidate_labels": "cat,a dog", "hypothesis_template": "{}"}),
        ("abc", {"candidate_labels": ["cat", "me"], "hypothesis_template": "a {}", "multi_label": True}),
        (["abc", "a"], {"candidate_labels": ["cat"], "hypothesis_template": "{}.", "batch_size": 2}),
    ],
    "feature-extraction": [
        ("abc", {"return_tensors": True}),
        ("abc" * 20, {"truncation": True, "tokenize_kwargs": {"max_length": 24}}),
        (["abc", "a"], {"batch_size": 2}),
    ],
}
"""Pipelines of texts to inputs and keywords."""


def keywords(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """Inputs of a pipeline with the keywords of each call."""
    if name in TEXT_KEYWORDS:
        return TEXT_KEYWORDS[name]
    if name == "audio-classification":
        inputs = {"raw": RECORDING, "sampling_rate": 16_000}
        return [(RECORDING, {"top_k": 2}), (inputs, {"top_k": None}), (RECORDING, {"function_to_apply": "sigmoid"})]
    if name == "automatic-speech-recognition":
        chunks = {"chunk_length_s": 0.05, "stride_length_s": (0.01, 0.01), "ignore_warning": True}
        timestamps = [(RECORDING, {"return_timestamps": kind}) for kind in ("char", "word")]
        return [*timestamps, (RECORDING, chunks)]
    image, labels = picture(), {"candidate_labels": "cat,a dog", "hypothesis_template": "{}"}
    return {
        "image-classification": [
            (image, {"top_k": 2}),
            (image, {"function_to_apply": "sigmoid", "top_k": 1}),
            ([image, image], {"batch_size": 2, "function_to_apply": "none"}),
        ],
        "depth-estimation": [([image, image], {"batch_size": 2})],
        "image-feature-extraction": [
            (image, {"pool": True}),
            ([image, image], {"batch_size": 2, "return_tensors": True}),
        ],
        "image-segmentation": [
            (image, {"subtask": "semantic"}),
            (image, {"threshold": 0.5, "mask_threshold": 0.5, "overlap_mask_area_threshold": 0.5}),
        ],
        "object-detection": [(image, {"threshold": 0.0}), ([image, image], {"batch_size": 2, "threshold": 0.3})],
        "zero-shot-image-classification": [
            (image, {"candidate_labels": ["cat", "a dog", "me"], "hypothesis_template": "a {}"}),
            (image, {**labels, "tokenizer_kwargs": {"padding": True}}),
            ([image, image], {**labels, "candidate_labels": ["cat", "a dog"], "batch_size": 2}),
        ],
    }[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.full(days=6)
@pytest.mark.parametrize("name", [name for name in ARCHITECTURE if name != "question-answering"])
def test_keywords_of_pipeline(name, tmp_path):
    if name.startswith(("image", "depth", "object", "zero-shot-image")):
        picture()
    task = PIPELINES[name]
    save_checkpoint(tmp_path / "original", name)
    model_class = getattr(modeling, task.model_class)
    sizes = shapes(name) | ({"sequence_length": 24} if name in TEXT_KEYWORDS else {})
    with model_class.from_pretrained(tmp_path / "original", export=True, **sizes) as model:
        model.save_pretrained(tmp_path / "exported")
    compiled_pipe, reference = (transformers.pipeline(name, str(tmp_path / kind)) for kind in ("exported", "original"))
    assert type(compiled_pipe.model) is model_class
    for inputs, options in keywords(name):
        result, expected = (run(copy.deepcopy(inputs), **copy.deepcopy(options)) for run in (compiled_pipe, reference))
        if name.startswith("zero-shot-image"):  # scores of random weights tie
            result, expected = (sorted(map(str, numbers(answer))) for answer in (result, expected))
        assert plain(result) == pytest.approx(plain(expected), abs=1e-3), options
    compiled_pipe.model.close()


def numbers(answer: Any) -> list[tuple[str, float]]:
    """Labels with their scores, in any order."""
    rows = [row for part in answer for row in (part if isinstance(part, list) else [part])]
    return [(row["label"], round(row["score"], 3)) for row in rows]


GENERATION: list[tuple[Any, dict[str, Any]]] = [
    ("Hello", {"return_full_text": False}),
    ("Hello", {"return_tensors": True}),
    ("Hello", {"return_text": True}),
    ("Hello", {"clean_up_tokenization_spaces": True, "skip_special_tokens": False}),
    ("Hello", {"prefix": "Oh "}),
    ("Hello " * 6, {"handle_long_generation": "hole"}),
    ("Hello", {"stop_sequence": "l"}),
    ("Hello " * 9, {"truncation": True, "max_length": 12, "max_new_tokens": 3}),
    ("Hello", {"tokenizer_encode_kwargs": {"max_length": 4, "truncation": True}}),
    ("Hello", {"add_special_tokens": True}),
    (["Hello", "a"], {"batch_size": 2}),
    ("Hello", {"num_beams": 2, "num_return_sequences": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2}),
    ([{"role": "user", "content": "a"}], {"return_full_text": False}),
    ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], {"continue_final_message": True}),
]


@pytest.mark.filterwarnings("ignore")
def test_keywords_of_text_generation(export_folder, checkpoint):
    actual, reference = (
        transformers.pipeline("text-generation", str(folder)) for folder in (export_folder, checkpoint)
    )
    assert type(actual.model) is modeling.NeuronModelForCausalLM
    for inputs, options in GENERATION:
        options = {"do_sample": False, "max_new_tokens": 5, **options}
        result, expected = (run(copy.deepcopy(inputs), **copy.deepcopy(options)) for run in (actual, reference))
        assert json.dumps(result) == json.dumps(expected), options
    actual.model.close()


def test_every_documented_keyword_is_used():
    """transformers' pages name keywords as "name (`type`, *optional*"; a new one fails here."""
    left_out = {"timeout", "args", "inputs", "text_inputs", "image", "images", "generate_kwargs", "return_language"}
    left_out |= {"decoder_kwargs", "parameters"}  # of a language model for CTC; the same as `timeout`
    used = {key for name in ARCHITECTURE if name in TEXT_KEYWORDS for _, options in keywords(name) for key in options}
    used |= {key for _, options in GENERATION for key in options}
    for name in ("text-classification", "token-classification", "fill-mask", "feature-extraction", "text-generation"):
        module = Path(transformers.pipelines.__file__).with_name(f"{name.replace('-', '_')}.py")
        source = module.read_text().partition("def __call__(self, ")[2].partition("def preprocess")[0]
        documented = set(re.findall(r"^ {12}(\w+) ?\(\s*`", source, re.MULTILINE))
        assert documented <= used | left_out, name
