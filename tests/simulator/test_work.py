"""Work is exact: counted by hand, and the same from a compiled program and from the configuration alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import CONFIG_MAPPING, AutoConfig, LlamaConfig, LlamaForCausalLM
from transformers.activations import NewGELUActivation

from optimum_neuron.compiler import chunk_tiles, contiguous_bytes, convolution_cycles, product_cycles
from optimum_neuron.errors import ModelError
from optimum_neuron.hardware import TARGETS
from optimum_neuron.simulator import constants, core_rates, device_time, estimate
from optimum_neuron.simulator.work import (
    GraphWork,
    Kernels,
    Layout,
    Step,
    Work,
    cache_bytes,
    decode_work,
    decoder_sizes,
    prefill_work,
    work_of_graph,
    work_of_program,
    work_on_device,
)
from optimum_neuron.simulator.work.decoder import local_heads, parameter_bytes
from tests.tiny import CONFIGS, SHAPES

ONE_CORE = Layout(num_cores=1, weight_bytes=4, cache_bytes=4, replicate_kv_heads=True)

DECODE_COUNTS = {
    "flops": 572129280,
    "product_flops": 572129280,
    "tensor_cycles": 556672.0,
    "attention_cycles": 16384.0,
    "vector_elements": 1254144.0,
    "unpacked_elements": 0.0,
    "softmax_elements": 8192.0,
    "weight_bytes": 570100736,
    "weight_rows": 1089219.0,
    "state_bytes": 2097152,
    "attention_reads": 128,
    "num_attentions": 32,
    "num_collectives": 66,
    "collective_bytes": 194560,
    "host_bytes": 32,
}
PREFILL_COUNTS = {
    "flops": 17766678528,
    "product_flops": 17766678528,
    "tensor_cycles": 556672.0,
    "attention_cycles": 16384.0,
    "vector_elements": 39092992.0,
    "unpacked_elements": 0.0,
    "softmax_elements": 131072.0,
    "weight_bytes": 570164224,
    "weight_rows": 1089281.0,
    "state_bytes": 0,
    "attention_reads": 0,
    "num_attentions": 0,
    "num_collectives": 66,
    "collective_bytes": 2257920,
    "host_bytes": 528,
}


def config(model_type: str, **changes):
    return AutoConfig.for_model(model_type, **{**CONFIGS[model_type], **changes})


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "cycles"),
    [
        (128, 128, 128, 128),
        (1, 128, 128, 64),
        (1, 256, 512, 512 * 2),
        (512, 128, 129, 2 * 512),
        (512, 129, 128, 2 * 512),
    ],
)
def test_matmul_uses_its_tiles(rows, inner, columns, cycles):
    assert product_cycles(rows, inner, columns) <= cycles
    assert product_cycles(rows, inner, columns) >= rows * inner * columns / 128**2


def test_few_channels_share_rows_of_array():
    assert convolution_cycles(1024, 3, 64, 9) == product_cycles(1024, 27, 64)
    assert convolution_cycles(1024, 64, 64, 9) == 9 * product_cycles(1024, 64, 64)


def test_prime_number_of_tiles_leaves_small_pieces():
    assert (chunk_tiles(43 * 128), chunk_tiles(32 * 128), chunk_tiles(37 * 2 * 128)) == (1, 16, 2)
    assert contiguous_bytes(43 * 128, 4096, 2) == contiguous_bytes(4096, 43 * 128, 2) == 256
    assert (contiguous_bytes(4544, 71 * 128, 2), contiguous_bytes(2048, 96, 2)) == (4096, 192)


def test_work_adds_up():
    graph = GraphWork(
        name="g", steps=(Step(name="a", work=Work(flops=3, state_bytes=2), count=4), Step(name="b", work=Work(flops=1)))
    )
    assert graph.total == Work(flops=13, state_bytes=8) and graph.num_calls == 5


@pytest.mark.parametrize("graph", ["prefill_16", "prefill_48", "decode_20", "decode_48"])
def test_compiled_decoder_and_its_configuration_agree(model, graph):
    kind, _, length = graph.partition("_")
    sizes = decoder_sizes(model.config)
    count = prefill_work if kind == "prefill" else decode_work
    arguments = {"tokens": int(length)} if kind == "prefill" else {"slots": int(length)}
    alone = count(sizes, ONE_CORE, batch_size=SHAPES["batch_size"], **arguments).total
    compiled_model = work_of_program(model.prepared.program, graph, auto_cast="none").total
    own_head = work_of_program(model.prepared.program, graph, auto_cast="matmul").total
    assert compiled_model.state_bytes == alone.state_bytes or kind == "prefill"
    assert compiled_model.num_unknown == 0
    assert compiled_model.product_flops == pytest.approx(alone.product_flops, rel=0.02)
    assert compiled_model.weight_bytes == pytest.approx(alone.weight_bytes, rel=0.02)
    assert own_head.tensor_cycles == pytest.approx(alone.tensor_cycles, rel=0.02)


@pytest.mark.parametrize("model_type", [name for name in CONFIGS if name not in ("mistral", "gemma3_text")])
def test_every_family_is_read_off_its_modules(model_type):
    from transformers import AutoModelForCausalLM

    choice = config(model_type)
    sizes = decoder_sizes(choice)
    with torch.device("meta"):
        original = AutoModelForCausalLM.from_config(choice)
    assert sizes.num_layers == choice.num_hidden_layers
    whole = decode_work(sizes, ONE_CORE, batch_size=1, slots=16).total.product_flops
    matrices = sum(
        p.numel() for n, p in original.named_parameters() if p.ndim == 2 and "embed" not in n and "wte" not in n
    )
    assert whole > 0 and (sizes.kind == "mixture" or whole >= 2 * 0.5 * matrices)


def on(num_cores: int) -> Layout:
    return dataclasses.replace(ONE_CORE, num_cores=num_cores)


@pytest.mark.parametrize(("model_type", "fields"), [("gemma4_text", ["head_dim"]), ("reformer", None)])
def test_configurations_without_one_size_for_all_layers_are_refused(model_type, fields):
    with pytest.raises(ModelError) as error:
        decoder_sizes(CONFIG_MAPPING[model_type]())
    assert error.value.details["model_type"] == model_type and error.value.details.get("fields") == fields


def test_shares_of_cores_add_up_to_whole():
    sizes = decoder_sizes(config("llama", hidden_size=1024, num_attention_heads=8, num_key_value_heads=8))
    whole = decode_work(sizes, ONE_CORE, batch_size=2, slots=64).total
    share = decode_work(sizes, on(4), batch_size=2, slots=64).total
    assert share.product_flops * 4 == pytest.approx(whole.product_flops, rel=0.01)
    assert share.state_bytes * 4 == whole.state_bytes
    assert share.num_collectives == 2 * sizes.num_layers + 2 and whole.num_collectives == 0


def test_heads_are_padded_and_repeated():
    sizes = decoder_sizes(config("llama", hidden_size=64 * 16, num_attention_heads=64, num_key_value_heads=8))
    assert local_heads(sizes, 8, replicate=True) == (8, 1)
    assert local_heads(sizes, 32, replicate=True) == (2, 1)
    assert local_heads(sizes, 32, replicate=False) == (2, 2)
    assert local_heads(sizes, 24, replicate=False) == (3, 3)
    assert cache_bytes(sizes, on(8), batch_size=1, slots=4) == 2 * 4 * 16 * 4 * sizes.num_layers


def test_tied_tables_are_kept_once():
    tied, apart = (config("llama", tie_word_embeddings=tie) for tie in (True, False))
    for choice in (tied, apart):
        with torch.device("meta"):
            original = LlamaForCausalLM(choice)
        num_elements = sum(parameter.numel() for parameter in original.parameters())
        assert parameter_bytes(decoder_sizes(choice), ONE_CORE) == 4 * num_elements


def test_mixture_token_loads_its_experts():
    sizes = decoder_sizes(config("mixtral"))
    assert sizes.kind == "mixture" and sizes.experts_per_token == 2
    one, two = (decode_work(sizes, ONE_CORE, batch_size=rows, slots=16).total.weight_bytes for rows in (1, 2))
    experts = sum(
        layer.count * sum(p.num_elements for p in layer.projections if p.role.startswith("expert"))
        for layer in sizes.layers
    )
    assert two - one == pytest.approx(2 * experts * 4, rel=0.01)


def test_dense_experts_see_all_tokens_of_a_prompt():
    sizes = decoder_sizes(config("mixtral"))
    dense = dataclasses.replace(ONE_CORE, dense_experts=True)
    own, every = (prefill_work(sizes, layout, batch_size=1, tokens=64) for layout in (ONE_CORE, dense))

    def expert_flops(graph):
        return sum(step.count * step.work.flops for step in graph.steps if step.name.startswith("expert"))

    (num_experts,) = {layer.num_experts for layer in sizes.layers}
    assert expert_flops(every) * sizes.experts_per_token == expert_flops(own) * num_experts
    assert every.total.weight_bytes == own.total.weight_bytes
    assert every.total.vector_elements > own.total.vector_elements
    few = [decode_work(sizes, layout, batch_size=1, slots=16).total for layout in (ONE_CORE, dense)]
    assert few[0] == few[1]
    many = [decode_work(sizes, layout, batch_size=8, slots=16).total.weight_bytes for layout in (ONE_CORE, dense)]
    assert many[1] < many[0]


def test_linear_attention_scans_its_prompt():
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
    choice = AutoConfig.for_model(
        "qwen3_5_text", hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, linear_value_head_dim=8, vocab_size=128, **heads,
    )  # fmt: skip
    sizes = decoder_sizes(choice)
    assert sizes.kind == "hybrid"
    states = [(layer.count, layer.state) for layer in sizes.layers if layer.state]
    assert [(count, state.num_heads, state.elements, state.window) for count, state in states] == [
        (3, 4, 16 * 8, 3 * 2 * (2 * 16 + 16))
    ]
    (scan,) = [step for step in prefill_work(sizes, on(2), batch_size=1, tokens=10).steps if step.name == "scan"]
    assert (scan.count, scan.work.vector_elements, scan.work.state_bytes) == (3, 4 * 10 * 2 * 128, 0)
    (scan,) = [step for step in decode_work(sizes, on(2), batch_size=3, slots=16).steps if step.name == "scan"]
    assert scan.work.state_bytes == 3 * 2 * 128 * 4
    keys = 2 * 16 * 1 * 16 * 4
    window = 3 * 3 * (2 * 16 + 16)  # three layers keep three inputs of each channel
    assert cache_bytes(sizes, on(2), batch_size=1, slots=16) == keys + 3 * 2 * 128 * 4 + window * 4


def test_gate_and_up_are_apart_where_a_checkpoint_joins_them():
    (layer,) = decoder_sizes(config("phi3")).layers
    assert [p.num_matrices for p in layer.projections if p.role == "up"] == [2]


def test_written_out_gelu_takes_one_pass():
    written = NewGELUActivation()
    program = torch.export.export(written, (torch.zeros(4, 8),), strict=False)
    assert work_of_graph(program.graph_module).total.vector_elements == 32

    def other(x):
        return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x**2)))

    traced = make_fx(other, tracing_mode="fake")(torch.zeros(4, 8))
    assert work_of_graph(traced).total.vector_elements == 8 * 32


def test_counts_of_a_decoder_are_these():
    sizes = decoder_sizes(config("llama", hidden_size=256, num_attention_heads=4, num_key_value_heads=2))
    shared = {"num_unknown": 0, "num_sends": 0, "sent_bytes": 0, "spill_bytes": 0, "result_bytes": 0}
    shared["kernels"] = Kernels()
    decode = decode_work(sizes, on(2), batch_size=2, slots=64).total
    prefill = prefill_work(sizes, on(2), batch_size=2, tokens=32).total
    assert vars(decode) == shared | DECODE_COUNTS
    assert vars(prefill) == shared | PREFILL_COUNTS


def test_graph_counts_weights_boundaries_and_float32_factor():
    exported_program = torch.export.export(torch.nn.Linear(256, 512), (torch.zeros(4, 256),), strict=False)
    slow, quick = (
        work_of_graph(exported_program.graph_module, roles=["weight", "weight", "value"], auto_cast=cast).total
        for cast in ("none", "matmul")
    )
    assert quick.product_flops == quick.flops == 2 * 4 * 256 * 512
    assert quick.weight_bytes == 2 * 256 * 512 + 4 * 512
    assert quick.host_bytes == 4 * 4 * (256 + 512)  # weights stay on the device
    assert slow.tensor_cycles == 4 * quick.tensor_cycles and slow.weight_bytes > quick.weight_bytes


def test_result_beyond_on_chip_memory_is_written_and_read():
    exported_program = torch.export.export(torch.nn.ReLU(), (torch.zeros(4096, 2048, device="meta"),), strict=False)
    work = work_of_graph(exported_program.graph_module, auto_cast="none").total
    assert work.spill_bytes == 0, "a rectifier comes free with the operator before it"
    exported_program = torch.export.export(torch.nn.GELU(), (torch.zeros(4096, 2048, device="meta"),), strict=False)
    work = work_of_graph(exported_program.graph_module, auto_cast="none").total
    assert (work.spill_bytes, work.flops) == (2 * 4 * 4096 * 2048, 4096 * 2048)


def test_operator_of_unknown_size_is_counted_as_unknown():
    class Picks(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    exported_program = torch.export.export(Picks(), (torch.ones(4),), strict=False)
    work = work_of_graph(exported_program.graph_module)
    assert work.total.num_unknown == 1 and work.unknown == ("aten.nonzero",)


def test_operators_of_equal_layers_have_their_layer(model):
    work = work_of_program(model.loaded.program, "decode_48")
    paths = [step.module_path for step in work.steps if step.name == "aten.linear"]
    layers = [path for path in paths if path.startswith("model.layers.")]
    assert {path.split(".")[2] for path in layers} == {"0", "1", "2"}
    assert all(path.count("layers") == 1 for path in layers)


def test_on_device_inputs_are_read_and_results_and_changes_are_written():
    def change(x, y):
        x.copy_(x + y)
        return x, y.relu(), y.view(-1)

    work = work_on_device(make_fx(change, tracing_mode="fake")(torch.zeros(4, 8), torch.zeros(4, 8)))
    assert (work.total.weight_bytes, work.total.result_bytes, work.total.host_bytes) == (2 * 128, 2 * 128, 0)
    assert [step.name for step in work.steps if step.work.vector_elements] == ["aten.add"]


@pytest.mark.full(days=6)
def test_sequence_parallel_prompt_takes_the_time_of_its_captured_graph():
    """Counted from sizes, and captured with the scatters and gathers that an export would have."""
    config = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=16)
    config.num_key_value_heads, config.vocab_size, config.architectures = 4, 1024, ["LlamaForCausalLM"]
    sizes = {"sequence_length": 2048, "input_length": 1024, "output_length": 64, "prefill_buckets": (1024,)}
    options = {"instance": "trn2.3xlarge", "tensor_parallel_size": 4, "dtype": "bf16"}
    target, fitted = TARGETS["trn2"], constants().cores[3]
    for apart in (False, True):
        captured = estimate(config, sequence_parallel=apart, **sizes, **options).device_ms["prefill_1024"]
        layout = Layout(num_cores=4, weight_bytes=2, cache_bytes=2, replicate_kv_heads=True, sequence_parallel=apart)
        work = prefill_work(decoder_sizes(config), layout, batch_size=1, tokens=1024).total
        assert 1e3 * device_time(work, core_rates(target), fitted, decoder=True).total_s == pytest.approx(
            captured, rel=0.15
        )
