"""Attention by an NKI kernel: equal to the plain path, in estimates and profiles, and refused with the reason."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import main_export
from optimum_neuron.models import build_decoder
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.profiling import page, profile_folder, trace_events
from optimum_neuron.simulator import estimate
from tests.tiny import VOCABULARY, save_tiny, tiny_config

LENGTHS = {"sequence_length": 256, "prefill_buckets": (128,), "decode_buckets": (256,), "extend_length": 1}
OPTIONS = LENGTHS | {"batch_size": 2, "instance_type": "trn2", "optlevel": "1", "torch_dtype": "float32"}
IDS = torch.randint(3, VOCABULARY, (2, 100), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "llama"
    return save_tiny(folder, "llama", num_hidden_layers=2, max_position_embeddings=256)


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "nki"
    return main_export(checkpoint, output, attention_kernel="nki", disable_validation=True, **OPTIONS).to_dict(), output


@pytest.fixture(autouse=True)
def instance(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2.3xlarge")


def test_model_equals_the_plain_one(checkpoint, exported):
    report, output = exported
    assert report["attention_kernel"]["value"] == "nki" and "2 of 2" in report["attention_kernel"]["reason"]
    model = NeuronModelForCausalLM.from_pretrained(output)
    plain = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **OPTIONS)
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, rtol=1e-4, atol=1e-5)
    assert torch.equal(
        model.generate(IDS, max_new_tokens=4, do_sample=False), plain.generate(IDS, max_new_tokens=4, do_sample=False)
    )


def test_profile_shows_the_engines_of_the_kernel(exported):
    profile = profile_folder(exported[1], prompt_length=100, num_steps=1)
    (kernel,) = profile.kernels
    (row,) = [row for row in profile.rows() if row.operator == "nki.flash_attention"]
    assert kernel.name == "flash_attention" and kernel.num_launches == 2
    assert row.num_calls == 2 and row.alone_us == pytest.approx(2 * kernel.total_us, rel=0.01)
    assert set(kernel.engines) >= {"tensor", "vector", "scalar", "dma"}
    assert "flash_attention.py" in kernel.events[0].line
    assert type(profile).from_json(profile.to_json()) == profile
    tracks = {event["args"]["name"] for event in trace_events(profile)["traceEvents"] if event["name"] == "thread_name"}
    assert {"kernel: tensor", "kernel: dma"} <= tracks
    assert "Kernels" in page(profile) and "nc_matmul" in page(profile)


@pytest.mark.full(days=2)
def test_estimate_has_the_time_of_the_kernel(checkpoint):
    def first_token_ms(**options):
        request = {"sequence_length": 256, "batch_size": 1, "input_length": 100, "instance": "trn2.3xlarge"}
        return estimate(checkpoint, **request, **options).ttft_ms.value

    assert first_token_ms(attention_kernel="nki") != first_token_ms(attention_kernel="plain")


def test_two_cores(checkpoint, tmp_path):
    options = OPTIONS | {"tensor_parallel_size": 2, "instance_type": "trn1.32xlarge"}
    report = main_export(checkpoint, tmp_path / "two", attention_kernel="nki", **options).to_dict()
    assert report["attention_kernel"]["value"] == "nki"
    assert max(error["max_abs_error"] for error in report["validation"]) < 1e-4


@pytest.mark.parametrize(
    ("model_type", "overrides", "options", "reason"),
    [
        ("llama", {}, {"family": "generic"}, "generic"),
        ("bloom", {}, {}, "ALiBi"),
        ("gemma2", {}, {}, "see"),
        ("gpt_oss", {}, {}, "another kind"),
        ("llama", {"head_dim": 160}, {}, "160"),
    ],
)
def test_models_that_cannot_have_it(model_type, overrides, options, reason):
    config = tiny_config(model_type, **overrides)
    with pytest.raises(ConfigError) as excinfo:
        build_decoder(config, dtype="float32", attention_kernel="nki", **options)
    assert excinfo.value.details["option"] == "attention_kernel" and reason in excinfo.value.details["reason"]


def test_layers_with_windows_stay_plain():
    config = tiny_config("gemma3_text")
    choice = build_decoder(config, dtype="float32", attention_kernel="nki").attention_kernel
    assert choice.value == "nki" and choice.rejected


@pytest.mark.parametrize(
    "options",
    [
        {"attention_kernel": "flash"},
        {"attention_kernel": "nki", "continuous_batching": True},
        {"attention_kernel": "nki", "prefill_buckets": (100, 128)},
    ],
)
def test_configurations_that_contradict_it(options):
    with pytest.raises(ConfigError) as excinfo:
        NeuronConfig(**{**LENGTHS, **options}).resolve(max_position_embeddings=256)
    assert excinfo.value.details["option"] == "attention_kernel"
