"""Device time: overlaps, and prompts that an older compiler made slower."""

from __future__ import annotations

import dataclasses

import pytest
from transformers import AutoConfig

from optimum_neuron.hardware import TARGETS
from optimum_neuron.simulator import (
    ATTENTION_READ_S,
    DeviceTime,
    Padding,
    ServingPlan,
    ServingTimes,
    Stack,
    constants,
    core_rates,
    device_time,
    plan_serving,
    serving_times,
    stack_at,
)
from optimum_neuron.simulator.serving import LARGE_GRAPH_CYCLES, LARGE_GRAPH_FACTOR
from optimum_neuron.simulator.stacks import STACKS, choose_stack
from optimum_neuron.simulator.work import GraphWork, Layout, Step, Work, decoder_sizes
from tests.tiny import CONFIGS

RATES = core_rates(TARGETS["inf2"])
FITTED = constants().cores[2]
WEIGHTS = Work(weight_bytes=10**9)
PRODUCTS = Work(tensor_cycles=10**6)
PASSES = Work(vector_elements=10**8)


def timed(work: Work, *, decoder: bool) -> DeviceTime:
    return device_time(work, RATES, FITTED, decoder=decoder, tiled=True)


def without_launch(work: Work, *, decoder: bool) -> float:
    return timed(work, decoder=decoder).total_s - FITTED.launch_us * 1e-6


@pytest.mark.parametrize("decoder", [True, False])
def test_weights_move_at_rate_of_dma_while_products_run(decoder):
    assert without_launch(WEIGHTS, decoder=decoder) == pytest.approx(1e9 / RATES.dma_bytes_per_s)
    assert without_launch(WEIGHTS + PRODUCTS, decoder=decoder) == pytest.approx(1e9 / RATES.dma_bytes_per_s)


def test_vector_passes_overlap_with_weights_outside_decoders():
    assert timed(WEIGHTS + PASSES, decoder=False).total_s == timed(WEIGHTS, decoder=False).total_s
    apart = without_launch(WEIGHTS, decoder=True) + without_launch(PASSES, decoder=True)
    assert without_launch(WEIGHTS + PASSES, decoder=True) == pytest.approx(apart)
    apart = without_launch(PRODUCTS, decoder=False) + without_launch(PASSES, decoder=False)
    assert without_launch(PRODUCTS + PASSES, decoder=False) == pytest.approx(apart)


def test_weights_are_unpacked_while_others_are_fetched():
    few, many = (Work(unpacked_elements=count) for count in (10**6, 10**10))
    assert timed(WEIGHTS + few, decoder=True).total_s == timed(WEIGHTS, decoder=True).total_s
    longest = without_launch(many, decoder=True)
    assert longest > without_launch(WEIGHTS, decoder=True)
    assert without_launch(WEIGHTS + PRODUCTS + many, decoder=True) == pytest.approx(longest)
    assert timed(few, decoder=True).parts_s["vector"] == timed(few, decoder=False).parts_s["vector"] > 0


@pytest.mark.parametrize("decoder", [True, False])
def test_parts_add_up_to_total(decoder):
    reads = Work(attention_reads=100, num_attentions=4)
    work = WEIGHTS + PRODUCTS + PASSES + reads + Work(num_collectives=3, collective_bytes=10**6)
    time = timed(work, decoder=decoder)
    alone = time.parts_s["launch"] + time.parts_s["link"] + time.reads_s + (time.parts_s["vector"] if decoder else 0)
    assert time.total_s == pytest.approx(max(time.compute_s, time.transfer_s) + alone)
    assert time.slower(3).total_s == pytest.approx(3 * time.total_s)
    assert time.slower(3).limited_by == time.limited_by == "dma"


def test_many_reads_of_one_operator_overlap():
    few, more, most = (Work(attention_reads=count, num_attentions=2) for count in (100, 200, 10**6))
    assert timed(more, decoder=True).reads_s == pytest.approx(2 * timed(few, decoder=True).reads_s)
    limit = 2 * FITTED.waiting_reads * ATTENTION_READ_S
    assert timed(most, decoder=True).reads_s == pytest.approx(limit)


@pytest.mark.parametrize(
    "field",
    [
        *("tensor_cycles", "attention_cycles", "vector_elements", "unpacked_elements", "softmax_elements"),
        *("weight_bytes", "weight_rows", "state_bytes", "attention_reads", "spill_bytes", "result_bytes"),
        *("num_collectives", "collective_bytes", "num_sends", "sent_bytes"),
    ],
)
def test_every_counter_takes_time(field):
    amount = Work(**{"num_attentions": 1, field: 100})
    options = {"decoder": True, "num_chips": 2, "flash": True}
    times = [device_time(work, RATES, FITTED, **options).parts_s for work in (amount, amount.scaled(2))]
    assert sum(times[1].values()) > sum(times[0].values())


def test_sends_to_another_instance_take_its_network():
    work = Work(num_sends=3, sent_bytes=10**6)
    time = device_time(work, RATES, FITTED, decoder=True, network_bytes_per_s=5e8)
    assert time.parts_s["link"] == pytest.approx(3 * 15e-6 + 1e6 / 5e8)
    assert time.total_s == pytest.approx(FITTED.launch_us * 1e-6 + time.parts_s["link"])


def test_single_prompts_are_padded_since_2025():
    sizes = decoder_sizes(AutoConfig.for_model("llama", **CONFIGS["llama"]))
    layout = Layout(num_cores=1, weight_bytes=2, cache_bytes=2, replicate_kv_heads=True)
    request = {"sequence_length": 4096, "input_length": 200, "output_length": 100}
    names = {
        (release, rows): plan_serving(sizes, stack_at("tgi", release), layout, batch_size=rows, **request).prefill.name
        for release in ((2, 19), (2, 22))
        for rows in (1, 4)
    }
    assert names.pop(((2, 19), 1)) == "prefill_256"
    assert set(names.values()) == {"prefill_4096"}


def served(stack: Stack, cycles: float) -> ServingTimes:
    graph = GraphWork(name="prefill_128", steps=(Step(name="product", work=Work(tensor_cycles=cycles)),))
    sizes = {"num_prefills": 1, "batch_size": 1, "concurrency": 1, "output_length": 64}
    padding = Padding(input_tokens=64, prefill_tokens=128, decode_slots=128)
    plan = ServingPlan(stack=stack, prefill=graph, decode=graph, padding=padding, **sizes)
    return serving_times(plan, RATES, FITTED, constants().hosts[stack.host], family="inf2")


def test_large_prompts_are_slower_with_neither_fused_attention_nor_bsh():
    releases = [(2, 18), (2, 18, 1), (2, 19)]
    old, patched, new = (stack_at("transformers-neuronx", release) for release in releases)
    assert new == dataclasses.replace(old, flash=True, batch_first=True, replicate_kv_heads=True)
    assert patched == dataclasses.replace(old, batch_first=True)
    large = 2 * LARGE_GRAPH_CYCLES
    slow, quick = served(old, large), served(new, large)
    assert slow.prefill.total_s == pytest.approx(LARGE_GRAPH_FACTOR * quick.prefill.total_s)
    assert served(patched, large).prefill.total_s == quick.prefill.total_s
    assert slow.tpot_s == quick.tpot_s
    small = LARGE_GRAPH_CYCLES / 2
    assert served(old, small).ttft_s == served(new, small).ttft_s


@pytest.mark.parametrize(
    ("sdk", "stack", "message"),
    [
        ("2.18", None, "not fused, large prompts at -O1"),
        ("2.18.1", None, "attention not fused"),
        ("2.19", None, "fused attention"),
        (None, "tgi", "fused attention"),
        ("2.18", "tgi", "not fused"),
        (None, None, "fused attention"),
    ],
)
def test_stack_reason_names_attention(sdk, stack, message):
    assert message in choose_stack(sdk, stack).reason
    assert choose_stack(sdk, stack).value.name in STACKS
