"""A compiled encoder-style model: buckets, batches, weights, saving, and errors."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import optimum_neuron
from optimum_neuron import (
    NeuronModelForFeatureExtraction,
    NeuronModelForImageClassification,
    NeuronModelForMaskedLM,
    NeuronModelForSequenceClassification,
    main_export,
)
from optimum_neuron.errors import (
    ArtifactError,
    CaptureError,
    ConfigError,
    ModelError,
    ShapeError,
    UnsupportedOperatorError,
    ValidationError,
    WeightsError,
)
from optimum_neuron.exporters.validation import statistics
from optimum_neuron.kinds import compile_options
from optimum_neuron.kinds.encoder import AXES, NeuronEncoderConfig
from optimum_neuron.sources import TASKS
from tests.encoders import IMAGE, SAMPLES, VOCABULARY, randomize, save_tiny_encoder, tiny_encoder_config, tiny_shapes
from tests.raising import raises, refused_operators

SHAPES: dict[str, Any] = {"batch_size": 2, "sequence_length": [8, 16], "optlevel": "1"}
TASK = "text-classification"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("bert") / "checkpoint", "bert", TASK)


@pytest.fixture(scope="module")
def original(checkpoint: Path) -> Any:
    return transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def model(checkpoint: Path, environment: None) -> NeuronModelForSequenceClassification:
    return NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **SHAPES)


@pytest.fixture(scope="module")
def export_folder(model: NeuronModelForSequenceClassification, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "bert_neuron"
    model.save_pretrained(folder)
    return folder


def tokens(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (rows, columns), generator=torch.Generator().manual_seed(rows * 100 + columns))


def answer(original: Any, **inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return original(**inputs)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def check(compiled_model: Any, original: Any, *, tolerance: float = 1e-5, **inputs: torch.Tensor) -> None:
    """Compare the logits, of three rows that no bucket fits if nothing else is given."""
    inputs = inputs or {"input_ids": tokens(3, 9)}
    close(compiled_model(**inputs).logits, answer(original, **inputs).logits, tolerance)


def tiny(folder: Path, model_type: str, task: str, *, config: dict[str, Any] | None = None, **shapes: Any) -> Any:
    """A compiled tiny model, and the original."""
    save_tiny_encoder(folder, model_type, task, **(config or {}))
    compiled_model = getattr(optimum_neuron, TASKS[task].model_class).from_pretrained(
        folder, export=True, **{"optlevel": "1", **shapes}
    )
    return compiled_model, getattr(transformers, TASKS[task].auto_class).from_pretrained(folder).eval()


# Inputs that processors make.


def test_deberta_drops_token_types_like_reference(tmp_path):
    models = tiny(tmp_path, "deberta-v2", TASK, config={"type_vocab_size": 0}, **SHAPES)
    check(*models, tolerance=1e-4, input_ids=tokens(1, 8), token_type_ids=torch.zeros(1, 8, dtype=torch.int64))


def test_clip_with_end_token_as_padding_is_validated(tmp_path):
    task = "zero-shot-image-classification"
    text = tiny_encoder_config("clip").text_config.to_dict() | {"pad_token_id": 3, "eos_token_id": 3}
    compiled_model, _ = tiny(tmp_path, "clip", task, config={"text_config": text}, **tiny_shapes("clip", task))
    outcomes = compiled_model.describe()["validation"]
    assert any(row["output"].startswith("padded: ") for row in outcomes) and all(row["ok"] for row in outcomes)


# Buckets and batches.


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 16])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_any_rows_and_lengths_up_to_largest_bucket(model, original, rows, columns):
    ids = tokens(rows, columns)
    result = model(input_ids=ids)
    assert isinstance(result, transformers.modeling_outputs.SequenceClassifierOutput)
    close(result.logits, answer(original, input_ids=ids).logits)


def test_masks_and_kinds_of_tokens_reach_model(model, original):
    ids = tokens(3, 9)
    mask, kinds = torch.ones_like(ids), torch.zeros_like(ids)
    mask[0, 5:], mask[1, :3], kinds[:, 4:] = 0, 0, 1
    expected = answer(original, input_ids=ids, attention_mask=mask, token_type_ids=kinds).logits
    for inputs in (mask, mask.bool(), mask.int()):
        close(model(input_ids=ids, attention_mask=inputs, token_type_ids=kinds.int()).logits, expected)
    assert (expected - answer(original, input_ids=ids).logits).abs().max() > 1e-3


def test_positional_tuple_and_none_inputs(model):
    ids = tokens(2, 8)
    plain = model(ids).logits
    assert torch.equal(model(ids, torch.ones_like(ids)).logits, plain)
    assert torch.equal(model(ids, attention_mask=None).logits, plain)
    assert torch.equal(model(ids, return_dict=False)[0], plain)
    with raises(ShapeError, inputs=["input_ids", "attention_mask", "token_type_ids"]):
        model(ids, input_ids=ids)


def test_loss_of_answer_positions_matches_reference(tmp_path):
    model, original = tiny(tmp_path, "bert", "question-answering", **SHAPES)
    known = {"start_positions": torch.tensor([1, 99]), "end_positions": torch.tensor([3, 2])}
    expected, output = answer(original, input_ids=tokens(2, 8), **known), model(tokens(2, 8), **known)
    close(output.loss, expected.loss)
    close(output.end_logits, expected.end_logits)
    assert torch.equal(model(tokens(2, 8), return_dict=False, **known)[0], output.loss)
    assert model(tokens(2, 8), start_positions=known["start_positions"]).loss is None


def test_choice_of_bucket_has_reason(model):
    choice = model.choose_bucket("sequence_length", 9)
    assert (choice.value, choice.rejected[0].candidate) == (16, "8")
    assert model.input_static_shapes == {"batch_size": 2, "sequence_length": [8, 16]}
    assert model.neuron_config.input_shapes == model.input_static_shapes


def test_results_are_cut_to_input_length(tmp_path):
    compiled_model, _ = tiny(tmp_path, "distilbert", "token-classification", **SHAPES)
    assert compiled_model(tokens(3, 11)).logits.shape == (3, 11, 3)


def test_width_equal_to_length_is_not_cut(tmp_path):
    """32 hidden values and 32 tokens: the cut is measured, not guessed from sizes."""
    compiled_model, _ = tiny(tmp_path, "bert", "feature-extraction", batch_size=1, sequence_length=32)
    output = compiled_model(tokens(1, 5))
    assert output.last_hidden_state.shape == (1, 5, 32) and output.pooler_output.shape == (1, 32)


def test_dynamic_batch_runs_single_row_alone(checkpoint, original):
    options = {"batch_size": 4, "sequence_length": 8, "dynamic_batch_size": True, "optlevel": "1"}
    compiled_model = NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **options)
    assert set(compiled_model.loaded.program.graphs) == {"forward_1", "forward_4"}
    calls: list[str] = []
    run = compiled_model.loaded.run
    compiled_model.loaded.run = lambda graph, *rest: calls.append(graph) or run(graph, *rest)
    check(compiled_model, original, input_ids=tokens(5, 8))
    assert calls == ["forward_4", "forward_1"]


def test_choices_are_padded(tmp_path):
    models = tiny(tmp_path, "bert", "multiple-choice", batch_size=1, num_choices=4, sequence_length=8)
    check(*models, input_ids=tokens(6, 7).view(2, 3, 7))


def test_texts_and_images_are_of_different_numbers(tmp_path):
    shapes = {"text_batch_size": 2, "image_batch_size": 2, "sequence_length": 12}
    compiled_model, plain = tiny(tmp_path, "clip", "zero-shot-image-classification", **shapes)
    inputs = {"input_ids": tokens(5, 9), "pixel_values": torch.randn(3, 3, IMAGE, IMAGE)}
    result, expected = compiled_model(**inputs), answer(plain, **inputs)
    assert type(result) is type(expected)
    for name in ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"):
        close(result[name], expected[name], 1e-4)


@pytest.mark.full(days=2)
def test_images_with_mask_may_be_smaller(tmp_path):
    compiled_model, plain = tiny(tmp_path, "detr", "object-detection", batch_size=1, height=64, width=64)
    image = torch.randn(1, 3, 48, 64)
    mask = torch.zeros(1, 64, 64, dtype=torch.long)
    mask[:, :48] = 1
    padded = torch.nn.functional.pad(image, (0, 0, 0, 16))
    expected = answer(plain, pixel_values=padded, pixel_mask=mask)
    close(compiled_model(pixel_values=image).pred_boxes, expected.pred_boxes, 1e-4)
    with raises(ShapeError, size=80, buckets=[64]):
        compiled_model(pixel_values=torch.randn(1, 3, 80, 64))


def test_compiled_hidden_states_and_attentions(checkpoint, original):
    layers, ids = {"output_hidden_states": True, "output_attentions": True}, tokens(3, 9)
    compiled_model = NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **layers, **SHAPES)
    original.set_attn_implementation("eager")
    expected = answer(original, input_ids=ids, **layers)
    original.set_attn_implementation("sdpa")
    actual = compiled_model(ids, output_hidden_states=True)
    output, reference = (result.hidden_states + result.attentions for result in (actual, expected))
    for one, other in zip(output, reference, strict=True):
        close(one, other)


# Weights and folders.


def test_class_is_for_its_task(checkpoint, export_folder):
    with raises(ModelError, task="masked-lm", model_class="NeuronModelForMaskedLM"):
        NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, task="masked-lm", **SHAPES)
    with raises(ModelError, task="image-classification", model_type="bert"):
        NeuronModelForImageClassification.from_pretrained(checkpoint, export=True, optlevel="1")
    model = NeuronModelForSequenceClassification.from_pretrained(export_folder, task="sequence-classification")
    assert model.neuron_config.task == TASK
    assert NeuronModelForSequenceClassification.from_pretrained(export_folder, task="auto").neuron_config.task == TASK


def test_model_in_memory_with_another_head_is_refused(checkpoint):
    body = transformers.AutoModel.from_pretrained(checkpoint)
    with raises(ModelError, task=TASK, served="feature-extraction"):
        NeuronModelForSequenceClassification.from_model(body, **SHAPES)


def test_model_in_memory_overrides_its_configuration(original, checkpoint):
    class Scaled(type(original)):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * 2
            return output

    scaled = Scaled.from_pretrained(checkpoint).eval()
    compiled_model = NeuronModelForSequenceClassification.from_model(scaled, **SHAPES)
    close(compiled_model(tokens(2, 8)).logits, 2 * answer(original, input_ids=tokens(2, 8)).logits)


@pytest.mark.parametrize(("own", "arguments"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_model_in_memory_is_compiled_in_requested_dtype(checkpoint, own, arguments):
    module = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint, dtype=getattr(torch, own))
    options = SHAPES | {"torch_dtype": arguments, "disable_validation": True}
    compiled_model = NeuronModelForSequenceClassification.from_model(module, **options)
    assert {spec.dtype for spec in compiled_model.loaded.program.weights.values()} == {arguments}
    assert module.dtype == getattr(torch, own)
    expected = answer(module.to(getattr(torch, arguments)), input_ids=tokens(3, 9)).logits.float()
    close(compiled_model(tokens(3, 9)).logits, expected, 2e-2)


def test_folder_is_export_and_checkpoint_with_shapes(model, original, export_folder):
    facts = json.loads((export_folder / "config.json").read_text())["neuron"]
    assert (facts["static_batch_size"], facts["static_sequence_length"], facts["task"]) == (2, [8, 16], TASK)
    assert (facts["int_dtype"], facts["float_dtype"], facts["model_type"]) == ("int64", "float32", "bert")
    ids = tokens(3, 9)
    loaded_model = NeuronModelForSequenceClassification.from_pretrained(
        export_folder, sequence_length=[8, 16], batch_size=2
    )
    assert torch.equal(loaded_model(ids).logits, model(ids).logits)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(export_folder).eval()
    assert torch.equal(answer(plain, input_ids=ids).logits, answer(original, input_ids=ids).logits)


def test_loading_checks_options_and_task(export_folder, tmp_path):
    with raises(ConfigError, differences=["sequence_length=128, compiled with [8, 16]"]):
        NeuronModelForSequenceClassification.from_pretrained(export_folder, sequence_length=128)
    with raises(ConfigError, options=["prefill_buckets"]):
        NeuronModelForSequenceClassification.from_pretrained(export_folder, prefill_buckets=(8,))
    with raises(ModelError, task=TASK, model_class="NeuronModelForSequenceClassification"):
        NeuronModelForMaskedLM.from_pretrained(export_folder)


@pytest.mark.parametrize(("size", "name"), [(3, "forward_8"), (None, "batch_size")])
def test_program_of_other_shapes_is_refused(export_folder, tmp_path, size, name):
    folder = shutil.copytree(export_folder, tmp_path / "copy")
    marker = json.loads((folder / "neuron_config.json").read_text())
    marker["neuron"]["batch_size"] = size
    (folder / "neuron_config.json").write_text(json.dumps(marker))
    with raises(ArtifactError, path=str(folder / "model.neuron")) as error:
        NeuronModelForSequenceClassification.from_pretrained(folder)
    assert name in " ".join(error.value.details["problems"])


def test_cache_never_returns_stale_weights(checkpoint, tmp_path):
    """The peer's cache key has no weights, its artifact has: a re-trained folder gave the old answers."""
    adapter_model = save_tiny_encoder(tmp_path, "bert", TASK, seed=7)
    ids = tokens(3, 9)
    for inline in (False, True):
        options = {**SHAPES, "inline_weights_to_neff": inline}
        first = NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **options)
        second = NeuronModelForSequenceClassification.from_pretrained(adapter_model, export=True, **options)
        assert second.prepared.cache.reason.startswith("hit")
        plain = transformers.AutoModelForSequenceClassification.from_pretrained(adapter_model).eval()
        check(second, plain)
        assert (first(ids).logits - second(ids).logits).abs().max() > 1e-3


def test_number_of_labels_is_another_program(checkpoint, tmp_path):
    compiled_model, _ = tiny(tmp_path, "bert", TASK, config={"num_labels": 5}, **SHAPES)
    assert compiled_model(tokens(2, 8)).logits.shape == (2, 5)


def test_body_without_its_head_is_found_in_checkpoint_with_another(checkpoint, original):
    compiled_model = NeuronModelForFeatureExtraction.from_pretrained(checkpoint, export=True, **SHAPES)
    ids = tokens(3, 9)
    close(compiled_model(ids).last_hidden_state, answer(original.bert, input_ids=ids).last_hidden_state)


def test_missing_head_is_an_error_on_request(checkpoint):
    with raises(WeightsError, is_head=True) as error:
        NeuronModelForMaskedLM.from_pretrained(checkpoint, export=True, allow_missing_weights=False, **SHAPES)
    assert error.value.details["problems"] and all(name.startswith("cls.") for name in error.value.details["problems"])


# The task, from the folder alone, which the peer cannot do.


def test_task_of_local_folder_is_inferred(checkpoint, tmp_path):
    report = main_export(checkpoint, tmp_path / "out", **SHAPES).to_dict()
    reason = "config.architectures has BertForSequenceClassification"
    assert report["task"] == {"value": TASK, "reason": reason, "rejected": []}
    assert report["family"]["value"] == "bert" and report["patches"] == []
    outputs = {f"{graph}: logits" for graph in ("forward_8", "forward_16", "padded")}
    assert {row["output"] for row in report["validation"]} == outputs


# Architectures that are not in the table.

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"vocab_size": VOCABULARY, "max_position_embeddings": 40}


def test_unknown_architecture_uses_generic_path_with_reason(tmp_path):
    config = transformers.MegatronBertConfig(**SIZES)
    randomize(transformers.MegatronBertForMaskedLM(config)).save_pretrained(tmp_path)
    compiled_model = NeuronModelForMaskedLM.from_pretrained(tmp_path, export=True, **SHAPES)
    family = compiled_model.describe()["family"]
    assert family["value"] == "generic" and "megatron-bert is not in the table" in family["reason"]
    check(compiled_model, transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval(), tolerance=1e-4)


@pytest.mark.parametrize("model_type", ["nomic_bert", "eurobert"])
def test_recent_encoders_use_generic_path(model_type):
    options = SIZES | {"head_dim": 8, "pad_token_id": 0}
    plain = randomize(transformers.AutoModel.from_config(transformers.AutoConfig.for_model(model_type, **options)))
    compiled_model = NeuronModelForFeatureExtraction.from_model(plain, **SHAPES)
    assert compiled_model.describe()["family"]["value"] == "generic"
    ids = tokens(3, 9)
    close(compiled_model(ids).last_hidden_state, answer(plain, input_ids=ids).last_hidden_state, 1e-4)


def test_model_without_mask_is_not_padded_and_fourier_transforms_are_refused(tmp_path):
    config = transformers.FNetConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    randomize(transformers.FNetModel(config)).save_pretrained(tmp_path)
    with raises(UnsupportedOperatorError) as error:
        NeuronModelForFeatureExtraction.from_pretrained(tmp_path, export=True, **SHAPES)
    assert any("fft" in name for name in refused_operators(error))


def test_decoder_as_encoder(tmp_path):
    config = transformers.PhiConfig(**SIZES, num_labels=3, pad_token_id=0)
    randomize(transformers.PhiForSequenceClassification(config)).save_pretrained(tmp_path)
    compiled_model = NeuronModelForSequenceClassification.from_pretrained(tmp_path, export=True, **SHAPES)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    check(compiled_model, plain, tolerance=1e-4)


# Validation.


def test_damaged_program_is_not_exported_and_layer_is_named(checkpoint, tmp_path, monkeypatch):
    from optimum_neuron.artifact import load as module

    def damaged(*arguments: Any) -> Any:
        bound = bind(*arguments)
        name = "model.bert.encoder.layer.1.output.dense.weight"
        return dataclasses.replace(bound, tensors=bound.tensors | {name: -bound.tensors[name]})

    bind = module.bind_weights
    monkeypatch.setattr(module, "bind_weights", damaged)
    # Code with another content, to which records of earlier comparisons do not apply.
    monkeypatch.setattr(statistics, "_versions", lambda: {"package": "damaged"})
    with raises(ValidationError) as error:
        main_export(checkpoint, tmp_path / "out", **SHAPES)
    assert "model.bert.encoder.layer.1 " in error.value.details["place"] and not (tmp_path / "out").exists()


# Refusals.

IDS = tokens(2, 8)


@pytest.mark.parametrize(
    ("inputs", "error", "details"),
    [
        ({}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": IDS[0]}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": IDS.float()}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": IDS[:0]}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": IDS + VOCABULARY}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": IDS - 100}, ShapeError, {"names": ["input_ids"]}),
        ({"input_ids": tokens(1, 17)}, ShapeError, {"size": 17, "buckets": [8, 16]}),
        ({"input_ids": IDS, "attention_mask": IDS[:, 1:]}, ShapeError, {"names": ["attention_mask"]}),
        ({"input_ids": IDS, "token_type_ids": IDS}, ShapeError, {"names": ["token_type_ids"]}),
        ({"input_ids": IDS, "atention_mask": IDS}, ShapeError, {"names": ["atention_mask"]}),
        ({"input_ids": IDS, "labels": torch.zeros(2).long()}, ConfigError, {"option": "labels"}),
        ({"input_ids": IDS, "output_attentions": True}, ConfigError, {"options": ["output_attentions"]}),
        ({"inputs_embeds": torch.randn(2, 8, 32)}, ShapeError, {"names": ["inputs_embeds", "input_ids"]}),
    ],
)  # fmt: skip
def test_bad_inputs(model, inputs, error, details):
    with raises(error, **details):
        model(**inputs)


def test_inputs_on_other_devices_are_refused(model):
    with raises(ShapeError, devices={"attention_mask": "meta"}):
        model(IDS.to("neuron"), attention_mask=torch.ones_like(IDS, device="meta"))


def test_repr_describes_model(model, checkpoint):
    shapes = "batch_size=2, sequence_length=[8, 16]"
    assert repr(model) == f"NeuronModelForSequenceClassification({checkpoint}, {TASK}, {shapes}, simulated inf2)"


def test_images_of_another_size_are_refused(tmp_path):
    compiled_model, _ = tiny(tmp_path, "vit", "image-classification", **tiny_shapes("vit", ""))
    with raises(ShapeError, axis="height", size=48, buckets=[IMAGE]):
        compiled_model(pixel_values=torch.randn(1, 3, 48, 32))
    with raises(ShapeError, axis="num_channels", size=1, buckets=[3]):
        compiled_model(pixel_values=torch.randn(1, 1, IMAGE, IMAGE))
    with raises(CaptureError, torch_error="ValueError"):
        NeuronModelForImageClassification.from_pretrained(tmp_path, export=True, height=48, width=48, optlevel="1")


def test_unpadded_recordings_must_fit(tmp_path):
    compiled_model, _ = tiny(tmp_path, "sew", "audio-classification", **tiny_shapes("sew", "audio-classification"))
    assert compiled_model(input_values=torch.randn(3, SAMPLES)).logits.shape == (3, 3)
    with raises(ShapeError, axis="audio_sequence_length", size=SAMPLES - 1, buckets=[SAMPLES]):
        compiled_model(input_values=torch.randn(1, SAMPLES - 1))


@pytest.mark.parametrize(
    ("options", "error", "details"),
    [
        ({"sequence_length": 41}, ConfigError, {"option": "sequence_length", "value": 41, "limit": 40}),
        ({"sequence_length": [16, 8]}, ConfigError, {"option": "sequence_length", "value": [16, 8]}),
        ({"sequence_length": 0}, ConfigError, {"option": "sequence_length", "value": 0}),
        ({"height": 32}, ConfigError, {"option": "height", "value": 32}),
        ({"prefill_buckets": (8,)}, ConfigError, {"options": ["prefill_buckets"]}),
        ({"sequence_lenght": 8}, ConfigError, {"options": ["sequence_lenght"]}),
        ({"task": "object-detection"}, ModelError, {"model_class": "NeuronModelForObjectDetection"}),
        ({"task": "object-detektion"}, ModelError, {"task": "object-detektion", "choices": list(TASKS)}),
    ],
)
def test_bad_options(checkpoint, options, error, details):
    with raises(error, **details):
        NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **{"optlevel": "1", **options})


def test_roberta_positions_start_after_padding_token(tmp_path):
    folder = save_tiny_encoder(tmp_path, "roberta", "fill-mask")
    with raises(ConfigError, option="sequence_length", value=39, limit=38):
        NeuronModelForMaskedLM.from_pretrained(folder, export=True, sequence_length=39, optlevel="1")
    NeuronModelForMaskedLM.from_pretrained(folder, export=True, sequence_length=38, optlevel="1")


def test_data_dependent_control_flow_names_line(checkpoint):
    class Undecided(transformers.BertForSequenceClassification):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **rest: Any) -> Any:
            if input_ids.sum() > 3:
                return super().forward(input_ids, attention_mask=attention_mask, **rest)
            return super().forward(input_ids, **rest)

    module = Undecided.from_pretrained(checkpoint)
    line = inspect.getsourcelines(Undecided.forward)[1] + 1
    with raises(CaptureError, source_line=f"{__file__}:{line}: if input_ids.sum() > 3:"):
        NeuronModelForSequenceClassification.from_model(module, **SHAPES)


# The configuration.


def test_one_bucket_is_number_and_several_are_graphs():
    config = NeuronEncoderConfig(task="fill-mask", batch_size=[2], sequence_length=[8, 16])
    assert config.batch_size == 2 and config == NeuronEncoderConfig.from_dict(config.to_dict())
    assert list(config.graphs()) == ["forward_8", "forward_16"]
    assert config.graphs()["forward_16"] == {"batch_size": 2, "sequence_length": 16}


def test_every_field_of_configuration_is_option_of_every_entry_point():
    assert set(AXES) <= set(compile_options())
    assert set(NeuronEncoderConfig.field_names()) - {"target"} <= set(compile_options())


def test_default_lengths_come_from_model(checkpoint, tmp_path):
    compiled_model = NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, optlevel="1")
    assert compiled_model.input_static_shapes == {"batch_size": 1, "sequence_length": 40}
    assert tiny_encoder_config("bert").max_position_embeddings == 40
