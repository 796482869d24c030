"""transformers' pipelines over compiled models, made by transformers and by `optimum_neuron.pipeline`."""

from __future__ import annotations

import logging

import pytest
import transformers

from optimum_neuron import pipeline
from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises
from tests.tiny import SHAPES

OPTIONS = {"do_sample": False, "max_new_tokens": 12}
CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return transformers.AutoTokenizer.from_pretrained(checkpoint)


@pytest.fixture
def quiet(caplog, monkeypatch):
    """Nothing is logged at warning or above, by transformers least of all, which keeps its logs to itself."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


@pytest.fixture
def answers(original, tokenizer):
    """Reference answers of transformers' own pipeline."""
    return transformers.pipeline("text-generation", model=original, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Hello", {}),
        ("a longer prompt", {}),
        (CHAT, {}),
        (["a", "a few words", "three"], {"batch_size": 2}),
        ("Hello", {"return_full_text": False, "num_return_sequences": 2, "num_beams": 2}),
    ],
)
def test_transformers_accepts_compiled_model_without_warning(model, tokenizer, answers, quiet, text, options):
    run = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    assert run(text, **OPTIONS, **options) == answers(text, **OPTIONS, **options)


def test_folder_or_model_is_enough(export_folder, model, answers, quiet):
    expected = answers("Hello", **OPTIONS)
    for inputs in (export_folder, str(export_folder), model):
        assert pipeline("text-generation", inputs)("Hello", **OPTIONS) == expected
    assert pipeline("text-generation", export_folder, export=False)(CHAT, **OPTIONS) == answers(CHAT, **OPTIONS)


def test_checkpoint_is_exported_by_pipeline(checkpoint, answers, quiet):
    run = pipeline("text-generation", checkpoint, export=True, **SHAPES)
    assert run.model.neuron_config.batch_size == 2
    assert run("Hello", **OPTIONS) == answers("Hello", **OPTIONS)


def test_option_groups_match_export(checkpoint, answers, quiet):
    groups = {"input_shapes": {"batch_size": 2, "sequence_length": 48}, "compiler_args": {"optlevel": "1"}}
    run = pipeline("text-generation", checkpoint, export=True, use_fast=True, num_cores=1, **groups)
    config = run.model.neuron_config
    assert (config.batch_size, config.sequence_length, config.optlevel) == (2, 48, "1")
    assert run("Hello", **OPTIONS) == answers("Hello", **OPTIONS)


@pytest.mark.parametrize(
    "options", [{"batch_size": 2, "input_shapes": {"batch_size": 2}}, {"compiler_args": {"auto_kast": "all"}}]
)
def test_groups_of_options_with_unknown_or_second_value_are_refused(checkpoint, options):
    with pytest.raises(ConfigError):
        pipeline("text-generation", checkpoint, export=True, **options)


def test_tokenizer_can_be_named(export_folder, checkpoint, tokenizer, answers):
    for inputs in (checkpoint, str(checkpoint), tokenizer):
        assert pipeline("text-generation", export_folder, inputs)("Hello", **OPTIONS) == answers("Hello", **OPTIONS)


def test_pipelines_default_length_ends_at_compiled_one(export_folder, caplog):
    """transformers' default of 256 new tokens is more than this model was compiled for."""
    (answer,) = pipeline("text-generation", export_folder)("Hello", return_full_text=False, do_sample=False)
    assert answer["generated_text"]
    assert "generation is limited to 43 new tokens instead of 256" in caplog.text


def test_refusals(export_folder, tmp_path):
    missing = str(tmp_path / "missing")
    for error, details, arguments, options in (
        (ModelError, {"option": "task", "value": "text-generaton"}, ("text-generaton", export_folder), {}),
        (
            ConfigError,
            {"differences": ["batch_size=4, compiled with 2"]},
            ("text-generation", export_folder),
            {"batch_size": 4},
        ),
        (ConfigError, {"options": ["sequence_lenght"]}, ("text-generation", export_folder), {"sequence_lenght": 16}),
        (
            ModelError,
            {"model": str(tmp_path), "auto_class": "AutoTokenizer"},
            ("text-generation", export_folder, tmp_path),
            {},
        ),
        (ModelError, {"model": missing, "reason": "missing"}, ("text-generation", missing), {}),
    ):
        with raises(error, **details):
            pipeline(*arguments, **options)
