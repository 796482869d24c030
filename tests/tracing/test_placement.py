"""Placement on cores: contexts, moving, replicas, lazy and background loading."""

from __future__ import annotations

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import held_cores
from optimum_neuron.tracing import (
    async_load,
    disable_nrt_load,
    lazy_load,
    move_trace_to_device,
    multicore_context,
    neuron_cores_context,
    set_multicore,
    set_neuron_cores,
    trace,
)
from optimum_neuron.tracing.script import neuron_models
from tests import warm
from tests.raising import raises
from tests.tracing.conftest import FAST, session

X = torch.rand(5, 12)


@pytest.fixture
def traced_model(mlp, monkeypatch):
    """Traces on an instance of twelve cores, of which the process may use four."""
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "4-7")
    return lambda: trace(mlp, X, compiler_args=FAST)


def cores(model):
    return session(model).core_ids


def test_models_go_to_visible_cores_in_turn(traced_model):
    models = [traced_model() for _ in range(5)]
    assert [cores(model) for model in models] == [(4,), (5,), (6,), (7,), (4,)]


@pytest.mark.full(days=3)
@pytest.mark.parametrize("how", ["traced", "loaded", "packed"])
def test_close_releases_core_permanently(how, traced_model, tmp_path):
    model, instance = traced_model(), INSTANCES["inf2.24xlarge"]
    if how == "packed":
        model = trace(lambda x: {"a": x + 1, "b": (x,)}, X, compiler_args=FAST)
    if how == "loaded":
        torch.jit.save(model, tmp_path / "model.pt")
        model.close()
        model = torch.jit.load(tmp_path / "model.pt")
    with contextlib.closing(model):
        model(X)
        assert held_cores(instance)
    gc.collect()  # of the test's other models
    assert cores(model) == () and held_cores(instance) == []
    model.close()
    with pytest.raises(RuntimeError, match="is closed"):
        model(X)


def test_last_reference_releases_core(traced_model):
    model = traced_model()
    model(X)
    assert held_cores(INSTANCES["inf2.24xlarge"])
    del model
    gc.collect()
    assert held_cores(INSTANCES["inf2.24xlarge"]) == []


def test_set_neuron_cores_unloads_and_next_call_loads(traced_model, mlp):
    model = traced_model()
    set_neuron_cores(model, start_nc=2)
    assert cores(model) == () and held_cores(INSTANCES["inf2.24xlarge"]) == []
    torch.testing.assert_close(model(X), mlp(X))
    assert cores(model) == (6,)
    set_neuron_cores(model, start_nc=1, nc_count=3)
    model(X)
    assert cores(model) == (5, 6, 7)
    set_multicore(model)
    model(X)
    assert cores(model) == (4, 5, 6, 7)


def test_minus_one_is_least_loaded_core_and_one_replica(traced_model):
    first, second = traced_model(), traced_model()
    set_neuron_cores(second, -1, -1)
    second(X)
    assert cores(first) == (4,) and cores(second) not in ((4,), ())
    set_neuron_cores(second, -1, 2)
    second(X)
    assert len(set(cores(second))) == 2 and cores(second)[0] != 4


def test_replicas_alternate_and_threads_agree(traced_model, mlp):
    model = traced_model()
    set_neuron_cores(model, 0, 2)
    calls = {4: 0, 5: 0}
    model(X)
    for replica in session(model).load():
        run, core = replica.loaded.run, replica.loaded.claim.core_ids[0]
        replica.loaded.run = lambda *a, run=run, core=core: (calls.__setitem__(core, calls[core] + 1), run(*a))[1]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: model(X), range(6)))
    assert sum(calls.values()) == 6 and min(calls.values()) >= 1
    assert all(torch.equal(output, results[0]) for output in results)


def test_contexts_apply_to_models_traced_or_loaded_inside(traced_model, tmp_path):
    with neuron_cores_context(start_nc=3):
        model = traced_model()
    torch.jit.save(model, tmp_path / "m.pt")
    with multicore_context():
        many = torch.jit.load(tmp_path / "m.pt")
    one = torch.jit.load(tmp_path / "m.pt")
    assert (cores(model), cores(many), len(cores(one))) == ((7,), (4, 5, 6, 7), 1)


def test_disable_nrt_load_waits_for_first_call(traced_model):
    with disable_nrt_load():
        model = traced_model()
    before = cores(model)
    model(X)
    assert (before, cores(model)) == ((), (4,))


@pytest.mark.parametrize(("start", "count"), [(4, 1), (-2, 1), (0, 5), (3, 2), (0, 0), (0, -2), (-1, 5)])
def test_unavailable_cores_are_refused(traced_model, start, count):
    model = traced_model()
    with raises(ConfigError, request=f"start_nc={start}, nc_count={count}", num_cores=4):
        set_neuron_cores(model, start, count)
    with pytest.raises(ConfigError), neuron_cores_context(start, count):
        pass
    assert cores(model) == (4,), "a refused move changes nothing"


def test_move_trace_to_device_loads_immediately(traced_model, mlp):
    model = traced_model()
    move_trace_to_device(model, 3)
    assert cores(model) == (7,)
    torch.testing.assert_close(model(X), mlp(X))
    for device in (4, -1):
        with raises(ConfigError, num_cores=4):
            move_trace_to_device(model, device)


def test_lazy_load_can_be_undone(traced_model):
    model = traced_model()
    lazy_load(model)
    assert cores(model) == () and neuron_models(model)[0].lazy_load
    lazy_load(model, False)
    assert not neuron_models(model)[0].lazy_load


def test_background_model_is_callable_and_raises_its_error(traced_model, mlp, tmp_path, monkeypatch):
    model, path = traced_model(), tmp_path / "m.pt"
    async_load(model)
    torch.jit.save(model, path)
    loaded_model = torch.jit.load(path)
    torch.testing.assert_close(loaded_model(X), mlp(X))
    assert len(cores(loaded_model)) == 1
    with neuron_cores_context(start_nc=3):
        monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
        loaded_model = torch.jit.load(path)
    with pytest.raises(RuntimeError, match="ConfigError.*may use 1 cores"):
        loaded_model(X)


def test_forked_child_claims_its_own_core():
    result = warm.run(
        "-c",
        """
import os, torch
from optimum_neuron.tracing import trace
torch.set_num_threads(1)
model = trace(torch.nn.ReLU(), torch.rand(2), compiler_args="-O1")
if os.fork() == 0:
    from optimum_neuron.tracing.script import neuron_models, session_of
    assert model(torch.ones(2)).tolist() == [1, 1]
    print(session_of(neuron_models(model)[0]).core_ids, flush=True)
    os._exit(0)
os.wait()
print(model(torch.ones(2)).tolist())
""",
    )
    assert result.stdout == "(1,)\n[1.0, 1.0]\n", result.stderr
