"""Keys and values in 8 bits: agreement with a reference that rounds them, bytes, folders, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.rules import check_graph
from optimum_neuron.configuration import NeuronConfig
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import judging_target, main_export, translate
from optimum_neuron.exporters.validation import cached_logits
from optimum_neuron.hardware import resolve_target
from optimum_neuron.models import as_cached, build_decoder
from optimum_neuron.simulator.work import work_of_program
from tests.models.mixtures import DEEPSEEK
from tests.tiny import SHAPES, VOCABULARY, save_tiny, tiny_config

SHORT = SHAPES | {"sequence_length": 32, "prefill_buckets": (16,), "decode_buckets": (32,), "extend_length": 4}
BLOCKS = {"continuous_batching": True, "prefill_buckets": None, "block_size": 8, "prefill_chunk_size": 16}
TWO_CORES = {"tensor_parallel_size": 2, "instance_type": "trn1.32xlarge"}
NUM_TOKENS, NUM_MORE = 9, 6
IDS = torch.randint(3, VOCABULARY, (2, NUM_TOKENS + NUM_MORE), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("plain") / "mistral", "mistral", num_hidden_layers=2)


@pytest.fixture(scope="module")
def export_result(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "int8"
    return main_export(checkpoint, output, kv_cache_dtype="int8", **SHORT).to_dict(), output


def steps_of(model):
    """Logits of a prompt, and of the tokens behind it one by one."""
    outputs = model(IDS[:, :NUM_TOKENS])
    logits = [outputs.logits]
    for column in range(NUM_TOKENS, IDS.shape[1]):
        outputs = model(IDS[:, column : column + 1], past_key_values=outputs.past_key_values)
        logits.append(outputs.logits)
    return torch.cat(logits, 1)


@torch.no_grad()
def expected_steps(checkpoint, dtype):
    reference = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    return torch.cat([cached_logits(reference, row[None], dtype, num_exact=NUM_TOKENS) for row in IDS])


def test_report_counts_the_stored_bytes(export_result):
    data, output = export_result
    assert data["kv_cache"]["value"] == "int8" and "scale" in data["kv_cache"]["reason"]
    assert max(error["max_abs_error"] for error in data["validation"]) < 1e-4
    # 2 layers, keys and values, 2 rows, 2 heads, a ring of 8 + 3 slots: 8 numbers and a float32 scale.
    assert data["hbm_bytes"]["kv_cache"] == 2 * 2 * 2 * 2 * 11 * (8 + 4)


def test_exported_folder_steps_reorders_and_forgets(checkpoint, export_result):
    model = NeuronModelForCausalLM.from_pretrained(export_result[1])
    assert model.describe()["kv_cache"]["value"] == "int8"
    dtypes = {name.partition(".")[0]: spec.dtype for name, spec in model.loaded.program.states.items()}
    assert dtypes == {"key_cache": "int8", "value_cache": "int8", "key_scale": "float32", "value_scale": "float32"}
    actual, expected = steps_of(model), expected_steps(checkpoint, torch.int8)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    outputs = model(IDS[:, :NUM_TOKENS])
    cache = outputs.past_key_values
    cache.reorder_cache(torch.tensor([1, 0]))
    swapped = model(IDS[[1, 0], NUM_TOKENS : NUM_TOKENS + 2], past_key_values=cache)
    torch.testing.assert_close(swapped.logits[:, 0], actual[[1, 0], NUM_TOKENS])
    cache.crop(-2)
    again = model(IDS[[1, 0], NUM_TOKENS : NUM_TOKENS + 1], past_key_values=cache)
    torch.testing.assert_close(again.logits, swapped.logits[:, :1])


def test_a_step_reads_the_stored_bytes(export_result):
    model = NeuronModelForCausalLM.from_pretrained(export_result[1])
    stored = sum(spec.size_bytes for spec in model.loaded.program.states.values())
    work = work_of_program(model.loaded.program, "decode_32").total
    written = stored // 11  # of one token: what it replaces is read before
    assert work.state_bytes == stored + written


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("fp8", TWO_CORES),
        ("int8", {"family": "generic"}),
        ("int8", BLOCKS),
        ("fp8", BLOCKS | {"family": "generic"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_validation_rounds_as_the_cache_does(dtype, options, checkpoint, tmp_path):
    data = main_export(checkpoint, tmp_path / "out", kv_cache_dtype=dtype, **SHORT | options).to_dict()
    assert max(error["max_abs_error"] for error in data["validation"]) < 1e-4
    assert data["kv_cache"]["value"] == dtype


def test_latents_are_stored_in_8_bits(tmp_path):
    folder = save_tiny(tmp_path / "deepseek", "deepseek_v3", **DEEPSEEK | {"num_hidden_layers": 2})
    data = main_export(folder, tmp_path / "out", kv_cache_dtype="int8", **SHORT | {"extend_length": 1}).to_dict()
    assert max(error["max_abs_error"] for error in data["validation"]) < 1e-4
    # 2 layers, 2 rows, 32 slots: a latent and a rotary key, each with a scale.
    assert data["hbm_bytes"]["kv_cache"] == 2 * 2 * 32 * (DEEPSEEK["kv_lora_rank"] + DEEPSEEK["qk_rope_head_dim"] + 8)


def test_states_without_slots_keep_their_dtype():
    family = build_decoder(tiny_config("qwen3_next"), dtype="bfloat16", kv_cache_dtype="int8")
    dtypes = {tensor.name: tensor.dtype for state in family.states for tensor in state}
    assert dtypes == {
        **{"conv_state": None, "recurrent_state": "float32", "key_cache": "int8", "value_cache": "int8"},
        **{"key_scale": "float32", "value_scale": "float32"},
    }
    assert {reason.candidate for reason in family.kv_cache.rejected} == {
        "conv_state of 2 layers",
        "recurrent_state of 2 layers",
    }


def test_models_without_keys_and_values_are_refused():
    config = tiny_config("mamba", state_size=4)
    with pytest.raises(ModelError) as excinfo:
        build_decoder(config, dtype="float32", kv_cache_dtype="int8")
    assert excinfo.value.details["option"] == "kv_cache_dtype"


class Rounding(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, key, value):
        return as_cached(self.dtype, key, value)


@pytest.mark.parametrize(
    ("name", "dtype", "missing", "code"),
    [
        ("fp8", torch.float8_e4m3fn, "float8_e4m3", "NCC_EVRF051"),
        ("int8", torch.int8, "int8", "NCC_ESPP004"),
    ],
)
def test_legal_where_the_core_has_the_dtype(name, dtype, missing, code):
    graph = torch.export.export(Rounding(dtype), (torch.randn(1, 2, 3, 4),) * 2)
    config = NeuronConfig(kv_cache_dtype=name)
    for target in ("inf2", "trn2", "trn3"):
        assert not check_graph(graph, judging_target(resolve_target(target).value, config)).refused
    target = resolve_target("trn1").value
    core = dataclasses.replace(target.core, dtypes=tuple(kind for kind in target.core.dtypes if kind != missing))
    lacking = dataclasses.replace(target, chip=dataclasses.replace(target.chip, core=core))
    assert {ruling.code for ruling in check_graph(graph, judging_target(lacking, config)).refused} == {code}


def test_names_of_other_libraries():
    assert translate({"kv_cache_dtype": "fp8_e4m3"}) == translate({"kv_cache_quant": True}) == {"kv_cache_dtype": "fp8"}
    assert translate({"kv_cache_dtype": "int8_per_token_head"}) == {"kv_cache_dtype": "int8"}
    with pytest.raises(ConfigError):
        translate({"kv_cache_quant": True, "kv_cache_dtype": "int8"})
    with pytest.raises(ConfigError) as excinfo:
        NeuronConfig(kv_cache_dtype="int4")
    assert excinfo.value.details["option"] == "kv_cache_dtype"
