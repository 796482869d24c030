"""One model on several cores: splitting, joining, and warnings for indivisible inputs."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.tracing import DataParallel, async_load, lazy_load, trace
from tests.raising import raises
from tests.tracing.conftest import FAST, session


@pytest.fixture
def traced_model(mlp, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "2-5")
    return trace(mlp, torch.rand(2, 12), compiler_args=FAST)


def cores(model):
    return session(model).core_ids


def test_all_cores_of_process_are_used_by_default(traced_model, mlp):
    parallel = DataParallel(traced_model)
    assert cores(traced_model) == (2, 3, 4, 5)
    assert (parallel.num_workers, parallel.split_size, parallel.dynamic_batching) == (8, None, True)
    for rows in (1, 7, 8, 30):
        x = torch.rand(rows, 12)
        torch.testing.assert_close(parallel(x), mlp(x))


def test_parts_have_size_of_input_by_number_of_cores(traced_model, monkeypatch):
    parallel = DataParallel(traced_model, device_ids=[0, 1, 2])
    calls = []
    call = parallel._call
    monkeypatch.setattr(parallel, "_call", lambda replica, x: (calls.append((replica, len(x[0]))), call(replica, x))[1])
    parallel(torch.rand(7, 12))
    assert sorted(calls) == [(0, 1), (0, 2), (1, 2), (2, 2)]
    calls.clear()
    parallel.split_size = 5
    parallel(torch.rand(7, 12))
    assert sorted(calls) == [(0, 5), (1, 2)]


@pytest.mark.parametrize("device_ids", [[1, 3], ["nc:1", "nc:3"], ("nc:1", 3)])
def test_cores_are_named_by_number_or_text(traced_model, device_ids):
    assert DataParallel(traced_model, device_ids=device_ids).device_ids == (1, 3)
    assert cores(traced_model) == (3, 5)


@pytest.mark.parametrize("device_ids", [[4], ["nc:9"], ["core1"], [0, 0], [], [-1], [True]])
def test_missing_cores_are_refused(traced_model, device_ids):
    with raises(ConfigError, request=f"device_ids={device_ids}", num_cores=4):
        DataParallel(traced_model, device_ids=device_ids)


@pytest.mark.parametrize("is_off_from_the_start", [True, False])
def test_without_dynamic_batching_parts_have_traced_size(traced_model, mlp, is_off_from_the_start):
    parallel = DataParallel(traced_model, device_ids=[0, 1], set_dynamic_batching=not is_off_from_the_start)
    if not is_off_from_the_start:
        parallel(torch.rand(6, 12))
        parallel.disable_dynamic_batching()
    x = torch.rand(4, 12)
    torch.testing.assert_close(parallel(x), mlp(x))
    with pytest.raises(RuntimeError, match="ShapeError"):
        parallel(torch.rand(6, 12))


def test_disabled_dynamic_batching_is_explained(monkeypatch):
    def function(x, y):
        return x + y

    model = trace(function, (torch.rand(2, 4), torch.rand(2, 4)), compiler_args=FAST)
    with pytest.warns(UserWarning, match="dynamic batching is off: dim=1"):
        parallel = DataParallel(model, dim=1)
    x, y = torch.rand(2, 8), torch.rand(2, 8)
    assert torch.equal(parallel(x, y), x + y)
    total = trace(lambda x: x.sum(0), torch.rand(2, 4), compiler_args=FAST)
    with pytest.warns(UserWarning, match="dynamic batching is off: .*dimension 0") as warnings:
        DataParallel(total)
    assert warnings[0].filename == __file__


def test_indivisible_inputs_are_refused(traced_model):
    parallel = DataParallel(traced_model)
    for inputs in ((torch.rand(0, 12),), (torch.rand(3, 12), torch.rand(2, 12)), (torch.tensor(1.0),), ()):
        with raises(ShapeError, dim=0, sizes=[len(x) if x.dim() else 0 for x in inputs]):
            parallel(*inputs)


def test_lazy_and_background_models_are_loaded(traced_model, mlp):
    lazy_load(traced_model)
    async_load(traced_model)
    parallel = DataParallel(traced_model)
    x = torch.rand(3, 12)
    torch.testing.assert_close(parallel(x), mlp(x))
    assert cores(traced_model) == (2, 3, 4, 5)
