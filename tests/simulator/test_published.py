"""The work of a decoder's sizes and of its compiled graphs are equal in every field, with the changes of stacks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import CONFIG_MAPPING

from optimum_neuron.compiler import compile_graphs, memory_need
from optimum_neuron.errors import ModelError
from optimum_neuron.exporters import main_export, neuron_config
from optimum_neuron.kinds import kind_of
from optimum_neuron.simulator import choose_machine, device_time, estimate
from optimum_neuron.simulator.work import (
    Attention,
    GraphWork,
    Layout,
    Step,
    Work,
    as_published,
    cache_bytes,
    decode_work,
    decoder_sizes,
    parameter_bytes,
    prefill_work,
    work_of_program,
)
from optimum_neuron.simulator.work.record import Matmul
from optimum_neuron.sources import load_source

SIZES = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 640,
    "max_position_embeddings": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ALL_HEADS = {"num_key_value_heads": 8}
WINDOWS = {"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32}
LINEAR = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 32}
LINEAR |= {"linear_num_key_heads": 8, "linear_num_value_heads": 16}
LINEAR |= {"linear_key_head_dim": 32, "linear_value_head_dim": 48}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 256, "tie_word_embeddings": False}
LATENT = {"q_lora_rank": 64, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 48, "v_head_dim": 40}
LATENT |= {"n_shared_experts": 1, "first_k_dense_replace": 1, **ALL_HEADS}
ARCHITECTURES = {
    "llama": {},
    "qwen2": {},  # biases of queries, keys, and values
    "qwen3": {"head_dim": 64},  # norms of heads
    "olmo2": {},  # norms of all heads together
    "phi3": {},  # gate and up in one weight
    "phi": ALL_HEADS,  # one norm for two branches, a bias of the head
    "gpt2": {"n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 512, **ALL_HEADS},
    "opt": {"ffn_dim": 640, "word_embed_proj_dim": 256, **ALL_HEADS},  # a table of positions
    "falcon": {"ffn_hidden_size": 640, "new_decoder_architecture": True, "num_kv_heads": 2},
    "glm4": {"head_dim": 32},  # four norms
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "mistral": {"sliding_window": 64},
    "gemma2": {**WINDOWS, "num_hidden_layers": 2},  # scores are written out
    "gemma3_text": {**WINDOWS, "layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": False},
    # Tokens of a step choose as many experts as there are.
    "qwen3_next": {**LINEAR, **EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 128},
    "deepseek_v3": {**LATENT, **EXPERTS, "n_routed_experts": 8, "n_group": 2, "topk_group": 1},
}
DEGREES = (1, 2, 8)
BATCH_SIZE, PROMPT, LENGTH = 2, 128, 256
COMPILED = {"batch_size": BATCH_SIZE, "sequence_length": LENGTH, "prefill_buckets": (PROMPT,)}
COMPILED |= {
    "decode_buckets": (LENGTH,),
    "torch_dtype": "bfloat16",
    "extend_length": 1,
    "instance_type": "trn1.32xlarge",
}
APART = ("flops", "host_bytes")
"""Fields with other contents: operations of other arithmetic too, and logits, which stacks keep on the device."""


def configuration(model_type: str):
    config = CONFIG_MAPPING[model_type](**SIZES | ARCHITECTURES[model_type])
    config.dtype = torch.bfloat16
    return config


def captured(tmp_path, model_type: str, degree: int):
    """Compile the graphs of a prompt and of a step; those of scores would take as long again."""
    configuration(model_type).save_pretrained(tmp_path)
    source = load_source(tmp_path)
    options = {"task": "text-generation", "tensor_parallel_size": degree, **COMPILED}
    config, _ = neuron_config(source, options, trust_remote_code=False)
    plan = kind_of(config.task, model_type).plan(source, config, trust_remote_code=False)
    kept = [one for one in plan.captures if one.keywords["role"] != "score"]
    return compile_graphs(kept, target=None, num_stages=plan.num_stages).program


def layout(degree: int) -> Layout:
    return Layout(num_cores=degree, weight_bytes=2, cache_bytes=2, replicate_kv_heads=True, dense_experts=True)


def fields(work: Work) -> dict[str, float]:
    return {name: pytest.approx(value) for name, value in vars(work).items() if name not in APART}


@pytest.mark.full(days=10)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_sizes_and_compiled_graphs_have_equal_work_memory_and_time(tmp_path, model_type):
    sizes = decoder_sizes(configuration(model_type))
    machine = choose_machine("trn1.32xlarge")
    for degree in DEGREES:
        program, placed = captured(tmp_path, model_type, degree), layout(degree)
        pairs = {
            f"prefill_{PROMPT}": prefill_work(sizes, placed, batch_size=BATCH_SIZE, tokens=PROMPT),
            f"decode_{LENGTH}": decode_work(sizes, placed, batch_size=BATCH_SIZE, slots=LENGTH),
        }
        for name, expected in pairs.items():
            raw = work_of_program(program, name).total
            actual = as_published(work_of_program(program, name)).total
            assert vars(actual).keys() - APART and fields(actual) == fields(expected.total), (degree, name)
            # Graphs expand the latents of a prompt, and scan in chunks.
            if sizes.latent is None and not any(layer.state for layer in sizes.layers):
                assert raw.product_flops == expected.total.product_flops == expected.total.flops
            times = [device_time(w, machine.rates, machine.fitted, decoder=True) for w in (actual, expected.total)]
            assert times[0].total_s == pytest.approx(times[1].total_s)
        need = memory_need(program)
        # Frequencies of rotations are constants of a program.
        assert 0 <= need.weights - parameter_bytes(sizes, placed) <= 4 * sizes.head_dim
        assert need.kv_cache == cache_bytes(sizes, placed, batch_size=BATCH_SIZE, slots=LENGTH)


@pytest.mark.full(days=3)
def test_hybrid_without_a_family_repeats_keys_and_normalizes_all_tokens(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "qwen3_5_text", LINEAR)
    sizes = decoder_sizes(configuration("qwen3_5_text"))
    program, placed = captured(tmp_path, "qwen3_5_text", 1), layout(1)
    prefill = as_published(work_of_program(program, f"prefill_{PROMPT}")).total
    decode = as_published(work_of_program(program, f"decode_{LENGTH}")).total
    expected = prefill_work(sizes, placed, batch_size=BATCH_SIZE, tokens=PROMPT).total
    unread = BATCH_SIZE * (PROMPT - 1) * sizes.hidden
    assert fields(prefill) == fields(expected + Work(vector_elements=3 * unread))
    expected = decode_work(sizes, placed, batch_size=BATCH_SIZE, slots=LENGTH).total
    repeated = 2 * BATCH_SIZE * LENGTH * sizes.head_dim * 2 * (sizes.num_heads - sizes.num_kv_heads)
    assert fields(decode) == fields(expected + Work(state_bytes=repeated))


def published(*steps: Step) -> tuple[Step, ...]:
    return as_published(GraphWork(name="decode_1", steps=steps)).steps


def linear(path: str, columns: int, **work) -> Step:
    sizes = Matmul(rows=4, inner=256, columns=columns, element_bytes=2)
    counts = {"vector_elements": 4 * columns, "weight_bytes": 2 * 256 * columns, "tensor_cycles": 1.0} | work
    return Step(name="aten.linear", module_path=path, matmul=sizes, work=Work(**counts))


def passes(path: str, name: str, elements: int, **work) -> Step:
    return Step(name=name, module_path=path, work=Work(vector_elements=elements, **work))


def test_norm_that_is_written_out_takes_three_passes():
    path = "model.layers.0.norm"
    written = [passes(path, f"aten.{name}", 64) for name in ("pow", "mean")] + [passes(path, "aten.rsqrt", 4)]
    assert [step.work.vector_elements for step in published(*written)] == [3 * 64, 0, 0]
    (fused,) = published(passes(path, "aten.layer_norm", 192))
    assert fused.work.vector_elements == 192


def test_work_that_cannot_be_counted_names_the_module():
    path = "layers.3.self_attn.q_proj"
    with pytest.raises(ModelError) as error:
        published(linear(path, 0))
    assert error.value.details["module"] == path and isinstance(error.value.__cause__, ArithmeticError)


def test_projections_of_attention_are_one_matrix_and_take_two_passes():
    names = ("q_proj", "k_proj", "v_proj")
    apart = [linear(f"layers.0.self_attn.{name}", 256) for name in names]
    (joined,) = published(linear("layers.0.self_attn.qkv_proj", 768))
    changed = [step.work for step in published(*apart)]
    assert sum(work.vector_elements for work in changed) == joined.work.vector_elements == 2 * 4 * 768
    assert sum(work.weight_rows for work in changed) == pytest.approx(joined.work.weight_rows)
    narrow = published(*(linear(f"layers.0.self_attn.{name}", 64, tensor_cycles=2 * 64.0) for name in names))
    # 2 tiles of inputs by 2 of the 192 columns, each at least 64 cycles; apart, they would be 3 x 2 x 64.
    assert sum(step.work.tensor_cycles for step in narrow) == pytest.approx(2 * 2 * 64)


def test_operators_of_attention_are_part_of_its_kernel():
    path = "layers.0.self_attn"
    rotation = passes(path, "aten.mul", 64)
    kernel = dataclasses.replace(
        passes(path, "aten.scaled_dot_product_attention", 64),
        attends=Attention(num_rows=1, num_heads=1, queries=4, keys=4),
    )
    assert [step.work.vector_elements for step in published(rotation, kernel)] == [0, 0]


def test_activation_is_computed_as_results_leave_psum():
    gate, up = (linear(f"layers.0.mlp.{name}", 128) for name in ("gate_proj", "up_proj"))
    silu = passes("layers.0.mlp.act_fn", "aten.silu", 512)
    product = passes("layers.0.mlp", "aten.mul", 512)
    down = linear("layers.0.mlp.down_proj", 256)
    added = passes("layers.0", "aten.add", 1024)
    counts = [step.work.vector_elements for step in published(gate, up, silu, product, down, added)]
    assert counts == [1.5 * 512, 1.5 * 512, 0, 0, 0, 1024]
    (plain,) = published(linear("layers.0.mlp.fc1", 128))
    assert plain.work.vector_elements == 512


def test_joined_gate_and_up_have_the_pieces_of_two_matrices():
    (joined,) = published(linear("layers.0.mlp.gate_up", 256))
    apart = published(linear("layers.0.mlp.gate_proj", 128), linear("layers.0.mlp.up_proj", 128))
    assert joined.work.weight_rows == sum(step.work.weight_rows for step in apart) == 2 * 256 * 256 / 256


def test_head_of_16_bits_runs_at_their_rate_and_tables_are_constants():
    (head,) = published(linear("lm_head", 256, tensor_cycles=4 * 512.0))
    assert head.work.tensor_cycles == 2 * 128
    table, row = passes("model", "aten.cos", 64, weight_bytes=16), passes("embed", "aten.embedding", 0, weight_bytes=8)
    assert [step.work.weight_bytes for step in published(table, row)] == [0, 8]
    assert published(table)[0].work.vector_elements == 0


def test_products_without_sizes_keep_their_work():
    packed = passes("layers.0.mlp.experts", "neuron.quantized_experts", 64, product_flops=8, tensor_cycles=2.0)
    assert published(packed)[0].work == packed.work


def test_estimates_of_a_configuration_and_of_its_export_are_equal(tmp_path):
    folder, exported = tmp_path / "model", tmp_path / "exported"
    configuration("llama").save_pretrained(folder)
    main_export(folder, exported, task="text-generation", tensor_parallel_size=2, on_device_sampling=True, **COMPILED)
    request = {"instance": "trn1.32xlarge", "output_length": LENGTH - PROMPT, "concurrency": BATCH_SIZE}
    after = estimate(exported, **request)
    alone = estimate(
        folder,
        **request,
        batch_size=BATCH_SIZE,
        sequence_length=LENGTH,
        tensor_parallel_size=2,
        stack="nxd-inference",
    )
    for name in ("ttft_ms", "tpot_ms", "hbm_bytes_per_step", "mfu", "mbu", "tokens_per_s"):
        assert getattr(alone, name).value == pytest.approx(getattr(after, name).value, rel=2e-3), name
    assert alone.kind == after.kind == "decoder" and alone.memory["kv_cache"] == after.memory["kv_cache"]
    assert alone.memory["weights"] == pytest.approx(after.memory["weights"], rel=1e-3)
