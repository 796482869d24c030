"""An exported folder is run on dummy inputs; its profile matches `estimate` for the same program."""

from __future__ import annotations

import dataclasses
import json

import pytest

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSeq2SeqLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import ArtifactError, ConfigError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.profiling import calls_of, profile_folder
from optimum_neuron.runtime import held_cores
from optimum_neuron.simulator import FORMAT, constants, estimate
from tests.encoders import save_tiny_encoder
from tests.raising import raises
from tests.seq2seq import SHAPES as SEQ2SEQ, save_tiny_seq2seq


def calls(profile):
    return {graph.graph: graph.num_calls for graph in profile.graphs}


def test_decoder_profile_matches_estimate(export_folder):
    estimate = NeuronModelForCausalLM.from_pretrained(export_folder).estimate(sequence_length=48, output_length=28)
    profile = profile_folder(export_folder, prompt_length=20, num_steps=28)
    assert calls(profile) == {"prefill_48": 1, "decode_48": 28}
    prompt, step = profile.graphs
    assert prompt.total_us == pytest.approx(1e3 * estimate.ttft_ms.value, rel=1e-9)
    assert step.total_us == pytest.approx(1e3 * estimate.tpot_ms.value, rel=1e-9)
    assert profile.total_us == pytest.approx(1e3 * estimate.latency_ms.value, rel=1e-9)
    assert prompt.total_us * prompt.low == pytest.approx(1e3 * estimate.ttft_ms.low, rel=1e-9)
    assert step.total_us * step.high == pytest.approx(1e3 * estimate.tpot_ms.high, rel=1e-9)
    for graph in profile.graphs:
        assert dict(graph.parts_us) == pytest.approx({k: 1e3 * v for k, v in estimate.parts_ms[graph.graph].items()})
        assert sum(one.time_us for one in graph.operators) + graph.launch_us == pytest.approx(graph.device_us)
    assert sum(row.time_us for row in profile.rows()) == pytest.approx(profile.device_us)
    assert sum(row.share for row in profile.rows()) == pytest.approx(1)


@pytest.mark.parametrize("auto_cast", ["none", "matmul"])
def test_encoder_profile_matches_estimate(tmp_path, auto_cast):
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    options = {"batch_size": 2, "sequence_length": [8, 16], "optlevel": "1", "auto_cast": auto_cast}
    model = NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **options)
    model.save_pretrained(tmp_path / "exported")
    estimate = model.estimate()
    profile = profile_folder(tmp_path / "exported")
    assert calls(profile) == dict.fromkeys(estimate.parts_ms, 1)
    assert profile.total_us == pytest.approx(1e3 * estimate.latency_ms.value, rel=1e-9)
    assert profile.interval_us == pytest.approx(
        (1e3 * estimate.latency_ms.low, 1e3 * estimate.latency_ms.high), rel=1e-9
    )
    with pytest.raises(ConfigError) as error:  # it has no prompt
        calls_of(model.loaded.program, num_steps=4)
    assert error.value.details == {"options": ["num_steps"]}


@pytest.mark.full(days=3)
def test_encoder_decoder_profile_matches_estimate(tmp_path):
    folder = save_tiny_seq2seq(tmp_path / "t5", "t5")
    options = {**SEQ2SEQ, "sequence_length": 8, "disable_validation": True}
    model = NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **options)
    model.save_pretrained(tmp_path / "exported")
    estimate = model.estimate(output_length=3)
    profile = profile_folder(tmp_path / "exported", num_steps=3)
    encode, prefill, decode = profile.graphs
    assert (encode.num_calls, prefill.num_calls, decode.num_calls) == (1, 1, 3)
    assert encode.total_us + prefill.total_us == pytest.approx(1e3 * estimate.ttft_ms.value, rel=1e-9)
    assert {graph.kind for graph in profile.graphs} == {estimate.kind} == {"seq2seq"}
    assert decode.total_us * decode.low == pytest.approx(1e3 * estimate.tpot_ms.low, rel=1e-9)
    assert profile.total_us == pytest.approx(1e3 * estimate.latency_ms.value, rel=1e-9)


def test_steps_move_to_larger_caches(model):
    program = model.loaded.program
    assert calls_of(program, prompt_length=18, num_steps=4) == ["prefill_48", *["decode_20"] * 2, *["decode_48"] * 2]
    assert calls_of(program, prompt_length=3, num_steps=0) == ["prefill_16"]
    assert calls_of(program)[0] == "prefill_48" and len(calls_of(program)) == 9


@pytest.mark.parametrize(
    ("lengths", "option", "value", "buckets"),
    [
        ({"prompt_length": 49}, "prompt_length", 49, [16, 48]),
        ({"prompt_length": 40, "num_steps": 9}, "prompt_length + num_steps", 49, [20, 48]),
        ({"prompt_length": 0}, "prompt_length", 0, [16, 48]),
    ],
)
def test_uncompiled_lengths_are_errors(model, lengths, option, value, buckets):
    with pytest.raises(ConfigError) as error:
        calls_of(model.loaded.program, **lengths)
    assert error.value.details == {"option": option, "value": value, "buckets": buckets}


def test_core_is_free_afterwards(export_folder):
    (machine,) = profile_folder(export_folder).machines
    assert "llama_neuron" not in {row["model"] for row in held_cores(INSTANCES[machine.instance])}


def test_invalid_export_folder_is_an_error(checkpoint):
    with raises(ArtifactError, missing=["neuron_config.json", "model.neuron"]):
        profile_folder(checkpoint)


def test_profile_with_own_constants_matches_estimate_with_them(tmp_path, export_folder):
    own = constants()
    core = dataclasses.replace(own.cores[2], launch_us=4 * own.cores[2].launch_us)
    mine = dataclasses.replace(own, cores={**own.cores, 2: core}, scale={"decoder.tpot_ms": 1.5})
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"format": FORMAT, **dataclasses.asdict(mine)}))
    expected = estimate(export_folder, sequence_length=48, output_length=28, constants=path)
    prompt, step = profile_folder(export_folder, prompt_length=20, num_steps=28, constants=path).graphs
    assert prompt.total_us == pytest.approx(1e3 * expected.ttft_ms.value, rel=1e-9)
    assert step.total_us == pytest.approx(1e3 * expected.tpot_ms.value, rel=1e-9)
    assert sum(one.time_us for one in step.operators) + step.launch_us == pytest.approx(step.device_us)
    with pytest.raises(ConfigError) as error:
        profile_folder(export_folder, constants=tmp_path / "missing.json")
    assert error.value.details["option"] == "constants"
