"""Device time: overlaps, and prompts that an older compiler made slower."""

from __future__ import annotations

import dataclasses

import pytest

from optimum_neuron.hardware import TARGETS
from optimum_neuron.simulator import (
    LARGE_GRAPH_CYCLES,
    LARGE_GRAPH_FACTOR,
    STACKS,
    DeviceTime,
    ServingPlan,
    ServingTimes,
    Stack,
    choose_stack,
    constants,
    core_rates,
    device_time,
    serving_times,
    stack_at,
)
from optimum_neuron.simulator.work import GraphWork, Step, Work

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
    work = WEIGHTS + PRODUCTS + PASSES + Work(attention_reads=100, num_collectives=3, collective_bytes=10**6)
    time = timed(work, decoder=decoder)
    alone = time.parts_s["launch"] + time.parts_s["link"] + time.reads_s + (time.parts_s["vector"] if decoder else 0)
    assert time.total_s == pytest.approx(max(time.compute_s, time.transfer_s) + alone)
    assert time.slower(3).total_s == pytest.approx(3 * time.total_s)
    assert time.slower(3).limited_by == time.limited_by == "dma"


def served(stack: Stack, cycles: float) -> ServingTimes:
    graph = GraphWork(name="prefill_128", steps=(Step(name="product", work=Work(tensor_cycles=cycles)),))
    sizes = {"num_prefills": 1, "batch_size": 1, "concurrency": 1, "input_length": 64, "output_length": 64}
    plan = ServingPlan(stack=stack, prefill=graph, decode=graph, **sizes)
    return serving_times(plan, RATES, FITTED, constants().hosts[stack.host], family="inf2")


def test_large_prompts_are_slower_without_fused_attention():
    old, new = stack_at("transformers-neuronx", (2, 18)), stack_at("transformers-neuronx", (2, 19))
    assert new == dataclasses.replace(old, flash=True)
    large = 2 * LARGE_GRAPH_CYCLES
    slow, quick = served(old, large), served(new, large)
    assert slow.prefill.total_s == pytest.approx(LARGE_GRAPH_FACTOR * quick.prefill.total_s)
    assert slow.tpot_s == quick.tpot_s
    small = LARGE_GRAPH_CYCLES / 2
    assert served(old, small).ttft_s == served(new, small).ttft_s


@pytest.mark.parametrize(
    ("sdk", "stack", "message"),
    [
        ("2.18", None, "not fused, large prompts at -O1"),
        ("2.19", None, "fused attention"),
        (None, "tgi", "fused attention"),
        ("2.18", "tgi", "not fused"),
        (None, None, "fused attention"),
    ],
)
def test_stack_reason_names_attention(sdk, stack, message):
    assert message in choose_stack(sdk, stack).reason
    assert choose_stack(sdk, stack).value.name in STACKS
