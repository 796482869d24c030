"""Estimates of compiled graphs: they keep their shapes."""

from __future__ import annotations

import inspect

import pytest
import torch

from optimum_neuron.errors import CaptureError, ConfigError, DeviceMemoryError
from optimum_neuron.hardware import TARGETS
from optimum_neuron.simulator import compare, estimate
from tests.raising import raises


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"batch_size": 7, "dtype": "bf16"}, {"options": ["batch_size", "dtype"]}),
        ({"tensor_parallel_size": 2, "sdk": "2.18"}, {"options": ["tensor_parallel_size", "sdk"]}),
        ({"height": 32}, {"options": ["height"]}),
        ({"output_length": -3}, {"option": "output_length", "value": -3}),
        ({"sequence_length": 10**5}, {"sequence_length": 10**5, "compiled": 48}),
        ({"sequence_length": 16, "output_length": 16}, {"sequence_length": 16, "output_length": 16}),
        ({"prefix_hit_rate": 0.5}, {"option": "prefix_hit_rate", "value": 0.5}),
    ],
)
def test_compiled_model_rejects_fixed_options(export_folder, options, details):
    with raises(ConfigError, **details):
        estimate(export_folder, instance="inf2.xlarge", **options)


def test_compiled_model_is_compared_on_its_number_of_cores(export_folder):
    result = compare(export_folder, instance="inf2", optimize="throughput")
    assert [one.num_cores.value for one in result.ranked] == [1] * len(TARGETS["inf2"].instances)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"sequence_length": 4}, {"dtype": "bf16"}, {"width": 4}])
def test_module_rejects_options_given_by_inputs(options):
    with pytest.raises(ConfigError) as error:
        estimate(torch.nn.Linear(4, 4), instance="inf2.xlarge", example_inputs=(torch.zeros(2, 4),), **options)
    assert error.value.details["options"] == list(options)


def test_uncapturable_module_names_its_line():
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    line = inspect.getsourcelines(Branches.forward)[1] + 1
    with raises(CaptureError, source_line=f"{__file__}:{line}: return x if x.sum() > 0 else -x"):
        estimate(Branches(), instance="inf2.xlarge", example_inputs=(torch.zeros(4),))
    with raises(ConfigError, option="example_inputs"):
        estimate(Branches(), instance="inf2.xlarge", example_inputs=(4,))


def test_meta_buffers_are_not_constants():
    with torch.device("meta"):
        scaled = torch.nn.Linear(8, 8)
        scaled.register_buffer("scale", torch.ones(8), persistent=False)
        scaled.register_forward_hook(lambda module, inputs, result: result * module.scale)
    report = estimate(scaled, instance="inf2.xlarge", example_inputs=(torch.zeros(2, 8, device="meta"),))
    assert report.hbm_bytes_per_step.value == 8 * 8 * 2 + 2 * 8 * 4
    rows_per_s = report.num_copies.value * 2 / (1e-3 * report.latency_ms.value)
    assert report.throughput_per_s.value == pytest.approx(rows_per_s)


def test_too_large_module_is_refused_with_table():
    with torch.device("meta"):
        large = torch.nn.Linear(2**16, 2**17, bias=False)
    with raises(DeviceMemoryError) as error:
        estimate(large, instance="inf2.xlarge", example_inputs=(torch.empty(1, 2**16, device="meta"),))
    assert error.value.details["hbm_bytes"]["weights"] == 32 * 2**30


def test_module_weights_stay_on_device():
    one, four = (
        estimate(torch.nn.Linear(2048, n), instance="inf2.xlarge", example_inputs=(torch.zeros(1, 2048),))
        for n in (2048, 8192)
    )
    read_ms = 1e3 * 3 * 2048 * 2048 * 2 / 272e9
    assert four.latency_ms.value - one.latency_ms.value < 2 * read_ms


def test_share_of_peak_is_at_most_1():
    report = estimate(torch.nn.Linear(4096, 4096), instance="inf2.xlarge", example_inputs=(torch.zeros(16384, 4096),))
    assert report.mfu.value > 0.4 and report.mfu.high == 1.0
