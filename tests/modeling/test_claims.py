"""A model that runs has its core before the work of minutes begins: busy and full cores are errors at once."""

from __future__ import annotations

import importlib

import pytest

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import ConfigError, CoreBusyError, DeviceMemoryError, ValidationError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, held_cores, ledger
from tests.encoders import save_tiny_encoder
from tests.runtime.conftest import Worker
from tests.tiny import SMALL

INSTANCE = INSTANCES["inf2.xlarge"]
build, load_export, prepare = (
    importlib.import_module(f"optimum_neuron.exporters.{name}") for name in ("build", "load", "prepare")
)
load = NeuronModelForCausalLM.from_pretrained


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", INSTANCE.name)
    return tmp_path / "home"


@pytest.fixture
def work(monkeypatch):
    """Compiles and lowerings from now on."""
    calls = []

    def recorded(name, real):
        return lambda *arguments, **options: calls.append(name) or real(*arguments, **options)

    for module, name in ((build, "compile_source"), (prepare, "lower"), (load_export, "lower")):
        monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
    return calls


@pytest.fixture
def hold(home):
    """Let another process hold cores until the test ends."""
    workers = []

    def hold(num_cores, **variables):
        workers.append(Worker(home, INSTANCE.name, variables))
        assert len(workers[-1].ask("claim", "trainer", num_cores)) == num_cores
        return workers[-1]

    yield hold
    for worker in workers:
        worker.end()


def test_busy_cores_are_error_before_anything_is_compiled_or_lowered(checkpoint, original, export_folder, work, hold):
    holder = hold(2)
    for start in (
        lambda: load(checkpoint, export=True, **SMALL),
        lambda: NeuronModelForCausalLM.from_model(original, **SMALL),
        lambda: load(export_folder),
    ):
        with pytest.raises(CoreBusyError) as busy:
            start()
        assert [row["pid"] for row in busy.value.details["holders"]] == [holder.pid] * 2
        assert busy.value.details["instance"] == INSTANCE.name
    assert work == []


def test_busy_cores_of_some_ranks_are_an_error_before_anything_is_compiled(checkpoint, work, hold):
    holder = hold(1, NEURON_RT_VISIBLE_CORES="1")
    with pytest.raises(CoreBusyError) as busy:
        load(checkpoint, export=True, tensor_parallel_size=2, **SMALL)
    assert [row["pid"] for row in busy.value.details["holders"]] == [holder.pid]
    assert busy.value.details["num_cores"] == 2 and work == []


def test_copies_need_all_their_cores_before_anything_is_compiled(tmp_path, work, hold):
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    holder = hold(1, NEURON_RT_VISIBLE_CORES="1")
    options = {"data_parallel_mode": "all", "batch_size": 1, "sequence_length": 8, "optlevel": "1"}
    with pytest.raises(CoreBusyError) as busy:
        NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **options)
    assert (
        busy.value.details["variables"] == ["NEURON_RT_VISIBLE_CORES=0"]
        and busy.value.details["holders"][0]["pid"] == holder.pid
    )
    assert work == [] and [row["pid"] for row in held_cores(INSTANCE)] == [holder.pid]


def test_core_is_held_while_model_is_compiled_and_kept_by_model(checkpoint, monkeypatch):
    values, real = [], build.compile_source

    def compile_source(*arguments, **options):
        values.extend(held_cores(INSTANCE))
        return real(*arguments, **options)

    monkeypatch.setattr(build, "compile_source", compile_source)
    model = load(checkpoint, export=True, disable_neuron_cache=True, **SMALL)
    (row,) = values
    assert (row["core_id"],) == model.loaded.claim.core_ids and row["model"] == str(checkpoint)
    assert [row["core_id"] for row in held_cores(INSTANCE)] == [row["core_id"]], "it is claimed once"
    model.loaded.close()
    assert held_cores(INSTANCE) == []


def test_core_without_room_is_error_before_host_code(checkpoint, export_folder, work, monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1")
    core = ledger(INSTANCE, 1)
    hog = core.charge("weights", core.available_bytes, "hog")
    try:
        for start in (lambda: load(checkpoint, export=True, **SMALL), lambda: load(export_folder)):
            with pytest.raises(DeviceMemoryError) as full:
                start()
            assert full.value.details["core_id"] == 1
            assert held_cores(INSTANCE) == []
    finally:
        hog.release()
    assert "lower" not in work


@pytest.mark.parametrize(("options", "error"), [({"atol": 0.0}, ValidationError), ({"atol": -1.0}, ConfigError)])
def test_failed_export_releases_its_core(checkpoint, options, error):
    with pytest.raises(error) as failed:  # its traceback has references to all objects, so release is no finalizer's
        load(checkpoint, export=True, **SMALL, **options)
    assert held_cores(INSTANCE) == [] and failed.tb is not None
    claim_cores(INSTANCE, model="next").release()
