"""`data_parallel_mode="all"`: a copy of a model on every core of the process, and a batch split over them."""

from __future__ import annotations

import threading

import pytest
import torch
import transformers

from optimum_neuron import (
    NeuronModelForSequenceClassification,
    NeuronModelForZeroShotImageClassification,
    NeuronSentenceTransformer,
    pipeline,
)
from optimum_neuron.errors import ConfigError, CoreBusyError, DeviceMemoryError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import ledger
from tests.encoders import IMAGE, VOCABULARY, save_letters, save_tiny_encoder
from tests.raising import raises
from tests.runtime.conftest import Worker

INSTANCE = "inf2.24xlarge"
SHAPES = {"batch_size": 2, "sequence_length": 8, "optlevel": "1"}
load = NeuronModelForSequenceClassification.from_pretrained


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", INSTANCE)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "2-5")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_encoder(tmp_path_factory.mktemp("bert") / "checkpoint", "bert", "text-classification")


@pytest.fixture
def original(checkpoint):
    return transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()


def export(checkpoint, **options):
    """Compile a classifier for every core."""
    return load(checkpoint, export=True, data_parallel_mode="all", **SHAPES, **options)


@pytest.fixture
def model(checkpoint):
    return export(checkpoint)


def tokens(rows, columns=8):
    return torch.randint(3, VOCABULARY, (rows, columns), generator=torch.Generator().manual_seed(rows))


def check(model, original, rows, columns=8):
    ids = tokens(rows, columns)
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids=ids).logits, original(ids).logits, atol=1e-5, rtol=1e-5)


def test_copy_is_on_every_core_and_charged_there(model):
    assert model.copies.core_ids == (2, 3, 4, 5)
    cores = model.describe()["cores"]
    assert cores["value"] == [2, 3, 4, 5] and "a copy on every core that the process may use" in cores["reason"]
    weights = {ledger(INSTANCES[INSTANCE], core).used_by_category()["weights"] for core in (2, 3, 4, 5)}
    assert len(weights) == 1 and weights.pop() >= model.prepared.need.weights


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 19])
def test_batches_keep_their_order(model, original, rows):
    check(model, original, rows)
    check(model, original, rows, columns=5)


def test_parts_of_batch_are_on_their_cores_at_same_time(model, original, monkeypatch):
    together, result = threading.Barrier(4, timeout=30), []
    for loaded in model.copies.loaded:

        def run(*call, loaded=loaded, run=loaded.run):
            together.wait()  # broken where fewer than four run at once
            result.append(loaded.claim.core_ids[0])
            return run(*call)

        monkeypatch.setattr(loaded, "run", run)
    check(model, original, 8)
    assert sorted(result) == [2, 3, 4, 5]


def test_small_dynamic_batch_is_split(checkpoint, original, monkeypatch):
    model, result = export(checkpoint, dynamic_batch_size=True), []
    for loaded in model.copies.loaded:

        def run(graph, given, loaded=loaded, run=loaded.run):
            result.append((loaded.claim.core_ids[0], graph))
            return run(graph, given)

        monkeypatch.setattr(loaded, "run", run)
    check(model, original, 4)
    assert sorted(result) == [(core, "forward_1") for core in (2, 3, 4, 5)]
    result.clear()
    check(model, original, 7)
    assert sorted(result) == [(2, "forward_2"), (3, "forward_2"), (4, "forward_2"), (5, "forward_1")]


def test_texts_and_images_are_both_split(tmp_path):
    folder = save_tiny_encoder(tmp_path, "clip", "zero-shot-image-classification")
    options = {"text_batch_size": 2, "image_batch_size": 1, "sequence_length": 8, "optlevel": "1"}
    options |= {"data_parallel_mode": "all"}
    model = NeuronModelForZeroShotImageClassification.from_pretrained(folder, export=True, **options)
    plain = transformers.AutoModelForZeroShotImageClassification.from_pretrained(folder).eval()
    inputs = {"input_ids": tokens(5), "pixel_values": torch.randn(3, 3, IMAGE, IMAGE)}
    with torch.no_grad():
        expected = plain(**inputs).logits_per_image
    torch.testing.assert_close(model(**inputs).logits_per_image, expected, atol=1e-4, rtol=1e-4)


def test_saved_folder_and_in_memory_model(model, original, tmp_path):
    model.save_pretrained(tmp_path)
    for parallel in (
        load(tmp_path, data_parallel_mode="all"),
        NeuronModelForSequenceClassification.from_model(original, data_parallel_mode="all", **SHAPES),
    ):
        assert parallel.copies.core_ids == (2, 3, 4, 5)
        check(parallel, original, 5)
    assert load(tmp_path).describe()["cores"]["value"] in ([core] for core in (2, 3, 4, 5))


def test_sentence_models_and_pipelines(tmp_path):
    folder = save_letters(save_tiny_encoder(tmp_path, "bert", "feature-extraction"))
    one = NeuronSentenceTransformer.from_pretrained(folder, export=True, **SHAPES)
    several = NeuronSentenceTransformer.from_pretrained(folder, data_parallel_mode="all", export=True, **SHAPES)
    texts = ["a", "bb cc", "dd", "a bb", "cc dd a"]
    result, expected = (model.encode(texts, convert_to_tensor=True) for model in (several, one))
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-5)
    piped = pipeline("feature-extraction", folder, export=True, data_parallel_mode="all", **SHAPES)
    assert piped.model.copies.core_ids == (2, 3, 4, 5)


def test_num_cores_limits_copies(checkpoint, original, monkeypatch, tmp_path):
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES")
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))  # cached values of a process are per home
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    model = export(checkpoint)
    assert len(model.copies.core_ids) == 2
    check(model, original, 7)


def test_cores_of_other_processes_are_refused_with_their_holders(checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    other = Worker(tmp_path, INSTANCE, {"NEURON_RT_VISIBLE_CORES": "3"})
    try:
        assert other.ask("claim", "trainer") == [3]
        with raises(CoreBusyError) as excinfo:
            export(checkpoint)
        (holder,) = excinfo.value.details["holders"]
        assert (holder["core_id"], holder["pid"], holder["model"]) == (3, other.pid, "trainer")
        assert excinfo.value.details["variables"] == ["NEURON_RT_VISIBLE_CORES=2,4-5"]
    finally:
        other.end()


def test_core_without_room_is_refused(checkpoint):
    core = ledger(INSTANCES[INSTANCE], 4)
    hog = core.charge("weights", core.available_bytes, "hog")
    try:
        with raises(DeviceMemoryError, core_id=4):
            export(checkpoint)
    finally:
        hog.release()


@pytest.mark.parametrize("mode", ["unet", "al", True, None])
def test_other_modes_are_refused_before_anything_is_compiled(mode, checkpoint, original):
    for method, model in (("from_pretrained", "no/such/model"), ("from_model", original)):
        with pytest.raises(ConfigError) as error:
            getattr(NeuronModelForSequenceClassification, method)(model, data_parallel_mode=mode)
        assert error.value.details == {"option": "data_parallel_mode", "value": mode, "choices": ["none", "all"]}
    with raises(ConfigError, options=["data_parallel"]):
        load(checkpoint, data_parallel=True)
