"""Saved models: loaded in other processes, copied, and refused when they were altered or are for another chip."""

from __future__ import annotations

import copy
import dataclasses
import gc
import zipfile

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ArtifactError, UnknownNameError, WeightsError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import held_cores
from optimum_neuron.tracing import lazy_load, ops, trace
from optimum_neuron.tracing.contexts import PLACEMENT
from optimum_neuron.tracing.script import neuron_models, session_of
from optimum_neuron.tracing.session import Session
from tests import warm
from tests.neffs import FACTS
from tests.raising import raises
from tests.tracing.conftest import FAST, Counter

INSTANCE = INSTANCES["inf2.xlarge"]


@pytest.fixture
def model_path(mlp, tmp_path):
    """A traced model, its file, an input and the answer."""
    x = torch.rand(5, 12)
    model = trace(mlp, x, compiler_args=FAST)
    torch.jit.save(model, tmp_path / "mlp.pt")
    torch.save({"x": x, "y": mlp(x)}, tmp_path / "example.pt")
    return model, tmp_path / "mlp.pt", x, mlp(x)


def member(path, name="/data/0"):
    with zipfile.ZipFile(path) as archive:
        return next(info for info in archive.infolist() if info.filename.endswith(name))


def rewritten(path, change):
    """A copy of a TorchScript file whose tensors' bytes went through `change`, with valid checksums."""
    buffer = path.with_name("changed.pt")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(buffer, "w") as output:
        for info in archive.infolist():
            data = archive.read(info)
            output.writestr(info.filename, change(data) if "/data/" in info.filename else data)
    return buffer


@pytest.mark.parametrize("inline", [True, False])
def test_file_runs_in_another_process(mlp, tmp_path, inline):
    x = torch.rand(5, 12)
    torch.jit.save(trace(mlp, x, compiler_args=FAST, inline_weights_to_neff=inline), tmp_path / "mlp.pt")
    torch.save({"x": x, "y": mlp(x).detach()}, tmp_path / "example.pt")
    program = f"""
import torch, optimum_neuron.tracing.ops
example = torch.load({str(tmp_path / "example.pt")!r})
model = torch.jit.load({str(tmp_path / "mlp.pt")!r})
torch.testing.assert_close(model(example["x"]), example["y"])
print("equal")
"""
    result = warm.run("-c", program)
    assert result.stdout == "equal\n", result.stderr


def test_torch_reports_missing_operators(model_path, python):
    result = python(f"""
import torch
try:
    torch.jit.load({str(model_path[1])!r})
except RuntimeError as error:
    print("Unknown builtin op: neuron::" in str(error))
""")
    assert result == "True\n"


def test_file_has_no_example_inputs_or_python(model_path):
    with zipfile.ZipFile(model_path[1]) as archive:
        names = archive.namelist()
    assert not [name for name in names if "traced_inputs" in name]
    assert len([name for name in names if "/data/" in name]) == 1


def test_loading_claims_core_and_frees_it(model_path):
    model, path, x, y = model_path
    assert session_of(neuron_models(model)[0]).core_ids == (0,)
    models = [torch.jit.load(path) for _ in range(3)]
    assert [session_of(neuron_models(model)[0]).core_ids for model in models] == [(1,), (0,), (1,)]
    assert [row["core_id"] for row in held_cores(INSTANCE)] == [0, 0, 1, 1]
    torch.testing.assert_close(models[2](x), y)
    del models
    gc.collect()
    assert [row["core_id"] for row in held_cores(INSTANCE)] == [0]


def test_copy_is_independent(model_path):
    model, _, x, y = model_path
    other = copy.deepcopy(model)
    first, second = (session_of(neuron_models(m)[0]) for m in (model, other))
    assert first is not second
    torch.testing.assert_close(other(x), y)


def test_saved_copy_of_loaded_model_is_same_file(model_path, tmp_path):
    torch.jit.save(torch.jit.load(model_path[1]), tmp_path / "again.pt")
    assert member(tmp_path / "again.pt", "/data/0").CRC == member(model_path[1], "/data/0").CRC


def test_flipped_byte_of_program_never_loads(model_path):
    _, path, _, _ = model_path
    size = member(path, "/data/0").file_size
    for position in (0, 30, 700, 1100, size // 2, size - 1):

        def flip(data, position=position):
            changed = bytearray(data)
            changed[position] ^= 1
            return bytes(changed)

        with pytest.raises(RuntimeError, match="ArtifactError|FormatVersionError"):
            torch.jit.load(rewritten(path, flip))


def test_altered_weights_are_refused_unless_check_is_off(tmp_path, monkeypatch):
    layer = nn.Linear(3, 2)
    model = trace(layer, torch.rand(1, 3), compiler_args=FAST, inline_weights_to_neff=False)
    torch.jit.save(model, tmp_path / "layer.pt")

    def flip(data):
        return data if len(data) > 1000 else bytes([data[0] ^ 1]) + data[1:]

    changed = rewritten(tmp_path / "layer.pt", flip)
    with pytest.raises(RuntimeError, match="WeightsError.*hash"):
        torch.jit.load(changed)
    monkeypatch.setenv("NEURON_RT_VALIDATE_HASH", "0")
    torch.jit.load(changed)


def test_file_for_another_generation_is_refused(mlp, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2.3xlarge")
    torch.jit.save(trace(mlp, torch.rand(5, 12), compiler_args=FAST), tmp_path / "trn2.pt")
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    with pytest.raises(RuntimeError, match=r"TargetMismatchError.*compiled for trn2 \(NeuronCore-v3\)"):
        torch.jit.load(tmp_path / "trn2.pt")


def test_newer_format_is_refused(model_path):
    def newer(data):
        changed = bytearray(data)
        changed[24] += 1  # neff_version_major, after pkg_version, header_size and data_size
        return bytes(changed)

    with pytest.raises(RuntimeError, match="FormatVersionError.*format version 2"):
        torch.jit.load(rewritten(model_path[1], newer))


def test_exported_program_is_not_a_traced_model(tmp_path):
    from optimum_neuron.compiler.neff import open_neff, write_neff

    write_neff(tmp_path / "a.neff", {"x": b""}, **FACTS)
    with open_neff(tmp_path / "a.neff") as neff, raises(ArtifactError, path=str(tmp_path / "a.neff"), kind=None):
        ops.open_session(neff, [])


def test_replaced_program_is_refused(model_path):
    model, _, x, _ = model_path
    neuron_models(model)[0].neff = torch.zeros(4, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="ArtifactError.*replaced by a plain tensor"):
        model(x)


def test_lazy_file_claims_core_on_first_call(model_path, tmp_path):
    model, _, x, y = model_path
    lazy_load(model)
    torch.jit.save(model, tmp_path / "lazy.pt")
    lazy = torch.jit.load(tmp_path / "lazy.pt")
    assert held_cores(INSTANCE) == []
    torch.testing.assert_close(lazy(x), y)
    assert len(held_cores(INSTANCE)) == 1


def test_runtime_gives_all_cores_back_until_the_next_call(model_path):
    from optimum_neuron.tracing import script_classes

    model, _, x, y = model_path
    script_classes.Runtime().unsafe_close()
    assert held_cores(INSTANCE) == []
    torch.testing.assert_close(model(x), y)


def test_states_are_read_and_written_on_their_core():
    module, x = Counter(), torch.rand(2, 4)
    model = trace(module, x, input_output_aliases={module.total: 1}, compiler_args=FAST)
    model(x)
    neff = neuron_models(model)[0].neff
    torch.testing.assert_close(torch.ops.neuron.read_state(neff, "total", 0), 1 + x)
    torch.ops.neuron.write_state(neff, "total", 0, torch.zeros(2, 4))
    torch.testing.assert_close(model(x), module.scale(x))
    for name, rank in (("totals", 0), ("total", 1)):
        with raises(UnknownNameError, key=name, rank=rank):
            torch.ops.neuron.read_state(neff, name, rank)


def test_program_with_other_metadata_or_without_its_weights_is_refused(mlp):
    model = trace(mlp, torch.rand(5, 12), compiler_args=FAST, inline_weights_to_neff=False)
    artifact = session_of(neuron_models(model)[0]).artifact
    with raises(WeightsError, model=artifact.neff.document.name):
        Session(artifact, [], placement=PLACEMENT.get()).load()
    other = dataclasses.replace(artifact)
    other.metadata["states"] = ["total"]
    with raises(ArtifactError, problems=["its metadata's states are ['total.0'], those of the program []"]):
        Session(other, [], placement=PLACEMENT.get())
