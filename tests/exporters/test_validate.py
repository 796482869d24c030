"""The comparison with the reference model: passing, failing, and the named layer."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.artifact import load as artifact_load
from optimum_neuron.engine import Decoder, Packing, Sequences, decoder as decoder_module
from optimum_neuron.errors import ConfigError, ValidationError
from optimum_neuron.exporters import main_export
from optimum_neuron.exporters.validation import OutputError, compare, default_tolerance, statistics, validate
from optimum_neuron.exporters.validation.statistics import allow_rounding
from optimum_neuron.kinds import Recorder, kind_of
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.runtime import Executor
from tests.raising import raises
from tests.tiny import SHAPES, save_tiny

BLOCKS = {"continuous_batching": True, "batch_size": 2, "sequence_length": 48, "extend_length": 4, "optlevel": "1"}
BLOCKS |= {"torch_dtype": "float32", "disable_validation": True}

LOGITS = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]])


def test_statistics():
    error = compare("x", LOGITS + torch.tensor([0.0, 0.5, -1.0]), LOGITS, tolerance=0.75)
    assert (error.max_abs_error, error.mean_abs_error, error.top1_agreement, error.ok) == (1.0, 0.5, 0.5, False)
    assert error.sqnr_db == pytest.approx(10 * math.log10(14 / 2.5))
    assert compare("x", LOGITS, LOGITS, tolerance=0.0).sqnr_db == math.inf
    assert compare("x", LOGITS, LOGITS, tolerance=0.0).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_never_passes(value):
    broken = LOGITS.clone()
    broken[0, 0, 0] = value
    assert not compare("x", broken, LOGITS, tolerance=1e30).ok


def test_an_error_may_be_twice_that_of_rounding():
    def of(difference):
        return compare("x", LOGITS + torch.tensor([[difference], [0.0]]), LOGITS, tolerance=0.5)

    assert not of(1.4).ok and allow_rounding(of(1.4), of(1.0)).ok
    assert not allow_rounding(of(1.4), of(0.6)).ok, "larger than twice the largest"
    everywhere = compare("x", LOGITS + 1.4, LOGITS, tolerance=0.5)
    assert not allow_rounding(everywhere, of(1.0)).ok, "more tokens than rounding touches"
    assert not allow_rounding(of(1.4), of(math.inf)).ok and not allow_rounding(of(math.nan), of(1.0)).ok


def test_plain_data_and_back():
    error = compare("x", LOGITS, LOGITS, tolerance=0.5)
    assert OutputError.from_dict(error.to_dict()) == error
    assert OutputError.from_dict(json.loads(json.dumps({**error.to_dict(), "sqnr_db": "inf"}))) == error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"torch_dtype": "float32"}, 1e-3),
        ({"torch_dtype": "bfloat16"}, 8 * 2**-8 * 10),
        ({"torch_dtype": "float16"}, 8 * 2**-11 * 10),
        ({"auto_cast": "matmul", "auto_cast_type": "fp8_e4m3"}, 8 * 2**-4 * 10),
        ({"auto_cast": "none", "auto_cast_type": "fp8_e4m3"}, 1e-3),
    ],
)
def test_tolerance_follows_arithmetic(options, expected):
    assert default_tolerance(NeuronConfig(**options), 10.0) == expected


def test_scenarios_of_decoder(model):
    outputs = [error.output for error in model.prepared.validation]
    results = ["prompt", "last prompt token", *(f"step {step}" for step in range(4))]
    assert outputs == [
        *(f"prompts of 16 tokens: {result}" for result in results),
        *(f"prompts of 19 tokens: {result}" for result in results),  # the steps pass the limit of decode_20
        "9 tokens at once after 16 tokens: chunk",
    ]
    assert all(
        error.ok and error.tolerance == 1e-3 and error.top1_agreement == 1 for error in model.prepared.validation
    )


# Defects between a user's call and the compiled program: users would run them, so validation does.


def defective(model, original, monkeypatch, owner, name, replacement):
    """Plant a defect and return the results that validation stops."""
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(ValidationError) as error:
        revalidate(model, original)
    return {row["output"] for row in error.value.details["validation"] if not row["ok"]}


def revalidate(model, original, *, tolerance=1e-3, dtype=None):
    kind, recorder = kind_of(model.task, model.config.model_type), Recorder(model.loaded)
    scenarios = kind.scenarios(recorder, original, model.prepared.metadata, model.neuron_config)
    return validate(scenarios, recorder, original, tolerance=lambda largest: tolerance, dtype=dtype)


def test_results_past_the_tolerance_are_compared_with_the_reference_in_a_narrow_dtype(model, original):
    before = {name: value.clone() for name, value in original.state_dict().items()}
    errors = revalidate(model, original, tolerance=0.0, dtype=torch.bfloat16)
    assert all(error.ok and error.max_abs_error < 1e-4 for error in errors)
    assert max(error.tolerance for error in errors) > 1e-3, "rounding to bfloat16 differs more"
    assert all(torch.equal(value, before[name]) for name, value in original.state_dict().items())


def test_packing_defect_is_detected(model, original, monkeypatch):
    def pack(self, ids, length):
        return torch.nn.functional.pad(ids, (0, length - ids.shape[1]))  # keeps the padding

    failures = defective(model, original, monkeypatch, Packing, "pack", pack)
    assert "prompts of 16 tokens: prompt" in failures


@pytest.mark.parametrize("shift", [-1, 1])
def test_cache_position_defect_is_detected(model, original, monkeypatch, shift):
    decode = Decoder.decode

    def shifted(self, group, ids, positions, lengths):
        return decode(self, group, ids, positions + shift, lengths)

    failures = defective(model, original, monkeypatch, Decoder, "decode", shifted)
    assert failures >= {f"prompts of 16 tokens: step {step}" for step in range(4)}
    assert "prompts of 16 tokens: last prompt token" not in failures


@pytest.mark.parametrize("missing", [1, 2])
def test_bucket_choice_defect_is_detected(model, original, monkeypatch, missing):
    """A decode graph that is one slot too small does not see the newest token."""

    def too_small(size, buckets):
        return min((bucket for bucket in buckets if size - missing <= bucket), default=None)

    failures = defective(model, original, monkeypatch, decoder_module, "smallest_bucket", too_small)
    assert failures and all("prompts of 19 tokens: step" in output for output in failures)


def test_reordered_sequences_are_compared(model, original, monkeypatch):
    failures = defective(model, original, monkeypatch, Sequences, "select", lambda self, indices: None)
    assert failures == {"prompts of 16 tokens: step 3", "prompts of 19 tokens: step 3"}


# Damage, as a wrong kernel or a wrong weight map would do it.


def damaged(folder, name, monkeypatch, **options):
    """Export with one weight negated after it was bound; return the error."""
    real = artifact_load.bind_weights

    def bind(*arguments):
        bound = real(*arguments)
        return dataclasses.replace(bound, tensors=bound.tensors | {name: -bound.tensors[name]})

    monkeypatch.setattr(artifact_load, "bind_weights", bind)
    # Code with another content, to which records of earlier comparisons do not apply.
    monkeypatch.setattr(statistics, "_versions", lambda: {"package": "damaged"})
    with pytest.raises(ValidationError) as excinfo:
        NeuronModelForCausalLM.from_pretrained(folder, export=True, **{**SHAPES, **options})
    return excinfo.value


@pytest.mark.parametrize("layer", [0, 1])
def test_damaged_layer_is_named(checkpoint, monkeypatch, layer):
    error = damaged(checkpoint, f"model.layers.{layer}.mlp.down.weight", monkeypatch)
    assert f"the first diverging module is model.layers.{layer} (SQNR " in error.details["place"]
    rows = error.details["validation"]
    assert rows and all(row["max_abs_error"] > 0.01 and row["top1_agreement"] is not None for row in rows)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("model.embed.weight", "the embedding diverges (SQNR "),
        ("model.layers.2.mlp.down.weight", "the first diverging module is model.layers.2 "),
        ("model.head.weight", "the cache, the norm or head after the last layer"),
    ],
)
def test_damage_outside_layers_is_reported(checkpoint, monkeypatch, weight, expected):
    assert expected in damaged(checkpoint, weight, monkeypatch).details["place"]


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    ("model_type", "weight", "expected"),
    [
        ("gpt2", "model.model.transformer.h.1.mlp.c_proj.weight", "model.model.transformer.h.1 "),
        ("gemma3_text", "model.model.model.layers.2.mlp.down_proj.weight", "model.model.model.layers.2 "),
        ("opt", "model.model.model.decoder.embed_positions.weight", "the embedding diverges"),
    ],
)
def test_layers_of_other_architectures_have_transformers_names(tmp_path, monkeypatch, model_type, weight, expected):
    folder = save_tiny(tmp_path, model_type)
    options = {"family": "generic", "prefill_buckets": (16,), "extend_length": 1}
    assert expected in damaged(folder, weight, monkeypatch, **options).details["place"]


@pytest.mark.full(days=2)
def test_no_module_is_named_where_cores_share_them(checkpoint, monkeypatch):
    options = {"tensor_parallel_size": 2, "instance_type": "trn1.2xlarge", "prefill_buckets": (16,), "extend_length": 1}
    error = damaged(checkpoint, "model.layers.1.mlp.down.weight@0", monkeypatch, **options)
    assert error.details["place"].startswith("each of 2 cores computes a part of every module")


def forgetful(model, original, monkeypatch, role):
    """Clear a part of the cache before the graphs of a role run; return the results that validation stops."""
    run = Executor.run

    def forget(self, graph, inputs, state=()):
        if graph.startswith(role):
            state[1].zero_()
        return run(self, graph, inputs, state)

    return defective(model, original, monkeypatch, Executor, "run", forget)


def test_damaged_cache_is_detected_by_decode_steps(model, original, monkeypatch):
    """Prompts do not read the cache, so only decoding shows that it is wrong."""
    failures = forgetful(model, original, monkeypatch, "decode")
    assert failures and not any("prompt" in output.rpartition(": ")[2] for output in failures)


@pytest.mark.full(days=2)
def test_damaged_chunk_of_candidates_is_detected_in_blocks(checkpoint, original, monkeypatch):
    """Only candidates go through this graph, so no prompt shows that it is wrong."""
    model = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **BLOCKS)
    failures = forgetful(model, original, monkeypatch, "extend")
    assert failures == {"4 tokens at once after 24 tokens: chunk"}


# Result of an export with it.


@pytest.mark.full(days=3)
@pytest.mark.parametrize(
    "shapes",
    [
        {"sequence_length": 1},
        {"sequence_length": 3, "batch_size": 3},
        {"sequence_length": 9, "batch_size": 2, "prefill_buckets": (2, 4), "decode_buckets": (3, 5, 9)}
        | {"extend_length": 3},
    ],
    ids=["one slot", "three slots", "many buckets"],
)
def test_caches_of_few_slots_are_compared(checkpoint, shapes):
    model = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, optlevel="1", **shapes)
    assert model.prepared.validation and all(error.ok for error in model.prepared.validation)


def test_tolerance_of_zero_rejects_rounding_frees_core_and_leaves_older_export(checkpoint, export_folder, tmp_path):
    before = (export_folder / "neuron_config.json").read_bytes()
    for output in (export_folder, tmp_path / "out"):
        with raises(ValidationError) as excinfo:
            main_export(checkpoint, output, atol=0.0, **SHAPES)
    assert {row["tolerance"] for row in excinfo.value.details["validation"]} == {0.0}
    assert "first diverging module" not in excinfo.value.details["place"]
    assert not (tmp_path / "out").exists() and (export_folder / "neuron_config.json").read_bytes() == before
    main_export(checkpoint, tmp_path, atol=0.01, **SHAPES)


def test_validation_can_be_switched_off(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("the original was loaded"))
    report = main_export(checkpoint, tmp_path, disable_validation=True, **SHAPES).to_dict()
    assert report["validation"] == [] and "validate" not in report["timings_s"]


@pytest.mark.parametrize(("atol", "switched_off"), [(-1.0, False), (math.nan, False), (math.inf, False), (0.1, True)])
def test_invalid_tolerance_is_refused(checkpoint, tmp_path, atol, switched_off):
    with pytest.raises(ConfigError) as excinfo:
        main_export(checkpoint, tmp_path, atol=atol, disable_validation=switched_off, **SHAPES)
    assert excinfo.value.details["option"] == "atol"
