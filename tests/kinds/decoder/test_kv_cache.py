"""Keys and values in 8 bits: agreement with a reference that rounds them, bytes, folders, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import types

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.rules import check_graph
from optimum_neuron.errors import ConfigError, ModelError, WeightsError
from optimum_neuron.exporters import judging_target, main_export, translate
from optimum_neuron.hardware import resolve_target
from optimum_neuron.kinds import cached_logits
from optimum_neuron.models import as_cached, build_decoder
from optimum_neuron.options.configuration import NeuronConfig
from optimum_neuron.simulator.work import work_of_program
from optimum_neuron.sources import published_cache
from optimum_neuron.upstream.cache_argument import CACHE
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
        outputs = model(IDS[:, column : column + 1], **{CACHE: outputs[CACHE]})
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
    cache = outputs[CACHE]
    cache.reorder_cache(torch.tensor([1, 0]))
    swapped = model(IDS[[1, 0], NUM_TOKENS : NUM_TOKENS + 2], **{CACHE: cache})
    torch.testing.assert_close(swapped.logits[:, 0], actual[[1, 0], NUM_TOKENS])
    cache.crop(-2)
    again = model(IDS[[1, 0], NUM_TOKENS : NUM_TOKENS + 1], **{CACHE: cache})
    torch.testing.assert_close(again.logits, swapped.logits[:, :1])


def test_a_step_reads_the_stored_bytes(export_result):
    model = NeuronModelForCausalLM.from_pretrained(export_result[1])
    stored = sum(spec.size_bytes for spec in model.loaded.program.states.values())
    work = work_of_program(model.loaded.program, "decode_32").total
    written = stored // 11  # of one token: what it replaces is read before
    assert work.state_bytes == stored + written


@pytest.mark.full(days=4)
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


@pytest.mark.full(days=2)
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


def save_scaled(folder, scheme, *, name="mistral", groups=None, **sizes):
    """Write a checkpoint with scales of its keys and values, as llm-compressor does."""
    save_tiny(folder, name, num_hidden_layers=2, **sizes)
    tensors = load_file(folder / "model.safetensors")
    for layer in range(2):
        tensors[f"model.layers.{layer}.self_attn.k_scale"] = torch.tensor([0.02 + 0.01 * layer])
        tensors[f"model.layers.{layer}.self_attn.v_scale"] = torch.tensor([0.005]).bfloat16()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    settings = {"quant_method": "compressed-tensors", "config_groups": groups or {}, "kv_cache_scheme": scheme}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))
    return folder


STATIC = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}


@pytest.mark.full(days=3)
@pytest.mark.parametrize("options", [{}, TWO_CORES | {"kv_cache_dtype": "fp8_e4m3"}, BLOCKS], ids=len)
def test_scales_of_a_checkpoint_divide_its_keys_and_values(options, tmp_path):
    folder = save_scaled(tmp_path / "scaled", STATIC)
    data = main_export(folder, tmp_path / "out", **SHORT | options).to_dict()
    assert data["kv_cache"]["value"] == "fp8-static" and "checkpoint" in data["kv_cache"]["reason"]
    assert max(error["max_abs_error"] for error in data["validation"]) < 1e-4
    model = NeuronModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.neuron_config.kv_cache_dtype == "fp8-static"
    stored = {spec.dtype for spec in model.loaded.program.states.values()}
    assert stored == {"float8_e4m3fn"}


def test_scales_use_the_range_of_the_chip():
    key = torch.linspace(-9, 9, 64).view(1, 1, 1, 64)
    scale = torch.tensor([9 / 448])  # of torch's e4m3, as calibration leaves it
    kept, _ = as_cached(torch.float8_e4m3fn, key, key, [scale, scale])
    expected = (key / scale).to(torch.float8_e4m3fn).float() * scale
    torch.testing.assert_close(kept, expected, atol=9 / 448 / 2**6, rtol=0)  # but for the smallest numbers


def test_a_plain_checkpoint_lacks_the_scales_which_is_said_before_a_compile(checkpoint):
    with pytest.raises(WeightsError) as excinfo:
        NeuronModelForCausalLM.get_neuron_config(checkpoint, kv_cache_dtype="fp8-static")
    assert excinfo.value.details["missing"] == ["k_scale", "v_scale"]


@pytest.mark.full(days=2)
def test_a_scale_that_one_layer_lacks_is_named(tmp_path):
    folder = save_scaled(tmp_path / "scaled", STATIC)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.v_scale"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError) as excinfo:
        main_export(folder, tmp_path / "out", **SHORT)
    assert any("model.layers.1.self_attn.v_scale" in problem for problem in excinfo.value.details["problems"])


@pytest.mark.parametrize(
    ("change", "field"),
    [({"type": "int"}, "type"), ({"strategy": "attn_head"}, "strategy"), ({"dynamic": True}, "dynamic")],
)
def test_other_schemes_of_a_checkpoint_are_refused_by_name(change, field):
    settings = {"quant_method": "compressed-tensors", "kv_cache_scheme": STATIC | change}
    config = tiny_config("llama", quantization_config=settings)
    with pytest.raises(ModelError) as excinfo:
        published_cache(config)
    assert list(excinfo.value.details["fields"]) == [field]
    assert published_cache(config, chosen="int8") == published_cache(config, chosen="fp8") == {}


def test_models_without_room_for_scales_are_refused():
    for options in ({"family": "generic"}, {}):
        config = tiny_config("deepseek_v3", **DEEPSEEK) if not options else tiny_config("llama")
        with pytest.raises(ModelError) as excinfo:
            build_decoder(config, dtype="float32", kv_cache_dtype="fp8-static", **options)
        assert excinfo.value.details["value"] == "fp8-static"


def test_cache_configuration_of_nxd_inference():
    cast = {"quant_dtype": torch.float8_e4m3fn, "direct_cast": True}
    assert translate({"kv_quant_config": cast, "kv_cache_quant": True}) == {"kv_cache_dtype": "fp8"}
    scaled = types.SimpleNamespace(quant_dtype=torch.float8_e4m3fn, k_quant_method="per_tensor_symmetric")
    assert translate({"kv_quant_config": scaled}) == {"kv_cache_dtype": "fp8-static"}
    wrong = [
        cast | {"quant_dtype": torch.int8},
        cast | {"zero_point": 1},
        {**cast, "direct_cast": False, "k_quant_method": "per_channel_symmetric"},
    ]
    for config, field in zip(wrong, ("quant_dtype", "zero_point", "k_quant_method"), strict=True):
        with pytest.raises(ConfigError) as excinfo:
            translate({"kv_quant_config": config})
        assert list(excinfo.value.details["fields"]) == [field]
    with pytest.raises(ConfigError):
        translate({"kv_quant_config": cast, "kv_cache_dtype": "int8"})
