"""A loaded model answers at once, operator by operator; sequences that begin later run compiled code.

Real compiles of a tiny model, some ten seconds.
"""

from __future__ import annotations

import re
import tempfile

import pytest
import torch
from safetensors.torch import load_file

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.lower import probe_compiler
from optimum_neuron.errors import ConfigError, LoweringError
from optimum_neuron.exporters import main_export
from optimum_neuron.files import shared_objects
from optimum_neuron.upstream.cache_argument import CACHE
from tests.raising import raises
from tests.tiny import SMALL
from tests.unwritable import forbid_writing

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
OPTIONS = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def export_folder(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "llama_neuron"
    main_export(checkpoint, folder, **SMALL)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An empty store, and separate cores."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("OPTIMUM_NEURON_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def first(export_folder, home):
    """The first load of a model on this machine, with its messages and calls before its code was compiled."""
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2")
    story = {"before": model.describe()["host_code"], "slow": model.loaded.executor}
    prefix = model(IDS, use_cache=True)
    story["begun"], story["turn"] = prefix[CACHE], model(IDS, use_cache=True)[CACHE]
    story["answer"] = model.generate(IDS, attention_mask=torch.ones_like(IDS), **OPTIONS)
    story["logits"] = prefix.logits
    assert model.wait_for_host_code(240)
    return model, story


def levels(executor):
    return {type(step.function).__name__ for plan in executor._plans.values() for step in plan.steps}


def test_loading_does_not_wait_for_compiler(first):
    model, story = first
    assert story["before"]["value"] == "aten"
    assert re.search(r"until it is compiled \([0-9]+ of [0-9]+ blocks\)", story["before"]["reason"])
    after = model.describe()["host_code"]
    assert "inductor" in after["value"] and "compiled in the background, " in after["reason"]
    assert model.prepared.host.current().wait(0), "there is nothing more to wait for"


def test_sequence_keeps_its_code_tier(first):
    model, story = first
    assert "CompiledFunction" in levels(model.loaded.executor) and "CompiledFunction" not in levels(story["slow"])
    cache = story["begun"]
    assert executors(cache) == [story["slow"]]
    cache.batch_repeat_interleave(2 * model.batch_size)  # takes more state
    assert len(executors(cache)) > 1 and set(executors(cache)) == {story["slow"]}
    fresh = model(IDS, use_cache=True)
    assert executors(fresh[CACHE]) == [model.loaded.executor]


def test_next_turn_of_a_chat_runs_on_compiled_code(first):
    model, story = first
    ids = torch.cat((IDS, torch.tensor([[8, 9]])), 1)
    asked = {"attention_mask": torch.ones_like(ids), **OPTIONS}
    assert executors(story["turn"]) == [story["slow"]]
    answer = model.generate(ids, **asked, **{CACHE: story["turn"]})
    assert executors(story["turn"]) == [model.loaded.executor]
    assert torch.equal(answer, model.generate(ids, **asked))


def executors(cache):
    """Code that the sequences of each state set run on."""
    return [group.state.executor for group in cache.sequences.groups()]


def test_both_tiers_match_within_rounding(first):
    model, story = first
    torch.testing.assert_close(model(IDS).logits, story["logits"], rtol=1e-4, atol=1e-4)
    assert torch.equal(model.generate(IDS, attention_mask=torch.ones_like(IDS), **OPTIONS), story["answer"])


def test_second_load_uses_compiled_code(first, export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2", wait_for_host_code=True)
    assert model.prepared.host.compiling is None and model.prepared.host.num_compiled == 0
    assert "CompiledFunction" in levels(model.loaded.executor)


@pytest.mark.parametrize("damage", ["empty", "flipped"])
def test_damaged_code_is_compiled_again(first, export_folder, home, damage, caplog):
    library = max((home / "host").rglob("unit-*.so"), key=lambda path: path.stat().st_mtime)
    data = library.read_bytes()
    library.unlink()  # the old file stays mapped, as after a rename
    library.write_bytes(b"" if damage == "empty" else bytes([data[0], data[1] ^ 1]) + data[2:])
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2", wait_for_host_code=True)
    assert "damaged" in caplog.text and model.prepared.host.num_compiled > 0
    torch.testing.assert_close(model(IDS).logits, first[1]["logits"], rtol=1e-4, atol=1e-4)
    second = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2", wait_for_host_code=True)
    assert second.prepared.host.num_compiled == 0


def test_code_writable_by_others_is_not_loaded(first, export_folder, home):
    (home / "host").chmod(0o777)
    try:
        with pytest.raises(LoweringError) as excinfo:
            NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2")
    finally:
        (home / "host").chmod(0o700)
    assert list(excinfo.value.details["unsafe"]) == [str(home / "host")]


def test_replaced_weights_survive_late_compilation(export_folder, tmp_path, monkeypatch, checkpoint):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2")
    before = model(IDS).logits
    tensors = load_file(checkpoint / "model.safetensors")
    model.replace_weights({name: tensor * 1.5 for name, tensor in tensors.items()})
    expected = model(IDS).logits
    assert model.wait_for_host_code(240) and "CompiledFunction" in levels(model.loaded.executor)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(expected, before, atol=1e-2)


@pytest.mark.full(days=4)
def test_export_compiles_no_host_code_by_default(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    shapes = SMALL | {"optlevel": "2"}
    report = main_export(checkpoint, tmp_path / "one", **shapes).to_dict()
    assert report["host_code"]["value"] == "aten" and "not in the store" in report["host_code"]["reason"]
    assert not list((tmp_path / "home").rglob("unit-*.so")) and all(row["ok"] for row in report["validation"])
    report = main_export(checkpoint, tmp_path / "two", precompile=True, **shapes).to_dict()
    assert "inductor" in report["host_code"]["value"] and list((tmp_path / "home").rglob("unit-*.so"))
    model = NeuronModelForCausalLM.from_pretrained(tmp_path / "two")
    assert model.prepared.host.compiling is None


def test_background_failure_is_reported_and_model_continues(export_folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # for the worker; this process has found its compiler before
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2")
    with pytest.raises(LoweringError) as excinfo:
        model.wait_for_host_code(240)
    assert excinfo.value.details["failures"] and "operator by operator" in caplog.text
    assert "could not be compiled" in model.describe()["host_code"]["reason"]
    assert model(IDS).logits.isfinite().all()


def test_mistyped_option_is_refused(export_folder):
    with raises(ConfigError, options=["wait_for_hostcode"]):
        NeuronModelForCausalLM.from_pretrained(export_folder, wait_for_hostcode=True)


def test_unwritable_home_uses_private_folder(export_folder, tmp_path, monkeypatch, caplog):
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(temp))  # for the worker
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    forbid_writing(monkeypatch, home)
    shared_objects._warn.cache_clear()
    model = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2")
    assert model.wait_for_host_code(240) and "CompiledFunction" in levels(model.loaded.executor)
    assert list(temp.rglob("unit-*.so")) and not list(home.rglob("unit-*.so"))
    assert caplog.text.count("compiled host code is kept in") == 1
    second = NeuronModelForCausalLM.from_pretrained(export_folder, optlevel="2", wait_for_host_code=True)
    assert second.prepared.host.num_compiled == 0
