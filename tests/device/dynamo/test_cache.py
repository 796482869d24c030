"""A warm start: loads from torch's caches, equal results, and the compile report."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.profiling import record
from tests.device.conftest import host_threads, needs_compiler
from tests.device.dynamo.warm import AOTAUTOGRAD, INDUCTOR, compiled, loaded_from, lookups, restart, scaled

pytestmark = [needs_compiler, pytest.mark.usefixtures("empty_cache")]

PROGRAM = """
import copy, json, torch
from torch._dynamo.utils import counters
from tests.device.dynamo.test_backend import losses, network
host = network()
ours = copy.deepcopy(host).to("neuron")
found = losses(ours, torch.compile(ours, backend="neuron"), "neuron")
counts = {key: dict(counters[key]) for key in ("aot_autograd", "inductor")}
report = torch.neuron.compile_report().to_dict()
print(json.dumps([found, losses(host, host, "cpu"), counts, report["graphs"]]))
"""


def test_second_process_neither_traces_nor_compiles(python, empty_cache):
    runs = []
    for _ in range(2):
        result = python(PROGRAM, TORCHINDUCTOR_CACHE_DIR=str(empty_cache))
        assert result.returncode == 0, result.stderr
        runs.append(json.loads(result.stdout))
    (first, expected, cold, cold_graphs), (second, _, warm, warm_graphs) = runs
    assert first == second and first == pytest.approx(expected, abs=1e-6)
    assert cold["aot_autograd"]["autograd_cache_miss"] == 1 and cold["aot_autograd"]["autograd_cache_saved"] == 1
    assert warm["aot_autograd"]["autograd_cache_hit"] == 1 and "autograd_cache_miss" not in warm["aot_autograd"]
    assert "fxgraph_cache_miss" not in warm["inductor"]
    assert {graph.pop("loaded_from") for graph in cold_graphs} == {None}
    assert {graph.pop("loaded_from") for graph in warm_graphs} == {AOTAUTOGRAD}
    assert [graph.pop("compile_s") >= 0 for graph in cold_graphs + warm_graphs] == [True] * 4
    assert cold_graphs == warm_graphs, "a loaded graph is reported as it was when it was compiled"


def test_views_and_changed_inputs_keep_their_storage():
    def change(x):
        x.add_(1)
        return x.view(-1)[1:], x.t(), x * 2

    times = []
    for origin in (None, AOTAUTOGRAD):
        restart()
        x = torch.zeros(2, 3, device="neuron")
        with record("cached") as recorder:
            tail, turned, double = compiled(change)(x)
        times.append(recorder.profile().device_us)
        tail.add_(1)
        assert x.sum().item() == 11 and turned.sum().item() == 11 and double.sum().item() == 12
        assert turned.untyped_storage()._cdata == x.untyped_storage()._cdata and double.device == x.device
        assert loaded_from() == [origin]
    assert times[0] == times[1] > 0, "a loaded graph has the simulated time that it had when it was compiled"


def test_random_numbers_come_from_device_generator():
    x, before, result = torch.ones(64, device="neuron"), torch.get_rng_state(), []
    for origin in (None, AOTAUTOGRAD):
        restart()
        dropped = compiled(lambda x: F.dropout(x, 0.5) * 2)
        torch.neuron.manual_seed(0)
        result += [dropped(x), dropped(x)]
        assert loaded_from() == [origin]
    assert (
        torch.equal(result[0], result[2])
        and torch.equal(result[1], result[3])
        and not torch.equal(result[0], result[1])
    )
    assert torch.equal(torch.get_rng_state(), before), "the host's generator is left alone"


@pytest.mark.full(days=4)
def test_saved_activations_are_freed_while_backward_runs():
    """The peak of a step is that of a process that compiled it."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4))).to("neuron")
    peaks = []
    for origin in (None, AOTAUTOGRAD):
        restart()
        run, x = compiled(model), torch.ones(512, 256, device="neuron")
        run(x).sum().backward()
        torch.neuron.reset_peak_memory_stats()
        run(x).sum().backward()
        peaks.append(torch.neuron.max_memory_allocated())
        assert loaded_from() == [origin] * 2
    assert peaks[0] == peaks[1]


def test_new_size_compiles_again_and_both_are_loaded():
    for origin in (None, AOTAUTOGRAD):
        restart()
        run = compiled(scaled)
        for size in (8, 12):
            x = torch.randn(size, size)
            torch.testing.assert_close(run(x.to("neuron")).cpu(), scaled(x), atol=1e-5, rtol=1e-5)
        assert loaded_from() == [origin] * 2
        assert "x was float32[8, 8], is float32[12, 12]" in str(torch.neuron.compile_report())


def test_removed_host_code_is_recompiled(empty_cache):
    model, x = nn.Linear(8, 8).to("neuron"), torch.ones(2, 8, device="neuron")
    compiled(model)(x).sum().backward()
    shutil.rmtree(empty_cache / "fxgraph")
    restart()
    compiled(model)(x).sum().backward()
    assert lookups() == {"miss": 1} and loaded_from() == [None, None]
    shutil.rmtree(empty_cache / "aotautograd")
    restart()
    compiled(model)(x).sum().backward()
    assert lookups() == {"miss": 1} and loaded_from() == [INDUCTOR, INDUCTOR]
    assert "first call; from Inductor's cache" in str(torch.neuron.compile_report())


def test_eager_operators_skip_the_cache():
    for _ in range(2):
        restart()
        compiled(scaled, optlevel="1")(torch.eye(4, device="neuron"))
        assert lookups() == {} and loaded_from() == [None]


def test_backward_is_compiled_for_threads_of_its_forward():
    host = nn.Linear(64, 64)
    model, x = copy.deepcopy(host).to("neuron"), torch.ones(2, 64)
    loss = compiled(model)(x.to("neuron")).sin().sum()
    with host_threads(torch.get_num_threads() + 1):
        loss.backward()
    gradient = model.weight.grad.cpu()
    model.weight.grad = None
    restart()
    compiled(model)(x.to("neuron")).sin().sum().backward()
    assert lookups() == {"hit": 1} and torch.equal(model.weight.grad.cpu(), gradient)
    host(x).sin().sum().backward()
    torch.testing.assert_close(gradient, host.weight.grad, atol=1e-5, rtol=1e-5)
