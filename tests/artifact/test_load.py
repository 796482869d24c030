from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from optimum_neuron.artifact import BoundProgram, open_artifact
from optimum_neuron.base.core import Choice
from optimum_neuron.compiler import write_program
from optimum_neuron.compiler.lower import lower
from optimum_neuron.errors import ArtifactError, TargetMismatchError, WeightsError
from optimum_neuron.hardware import INSTANCES, TARGETS
from optimum_neuron.weights import StateDict
from tests.programs import compile_module, spec

TARGET = TARGETS["inf2"]


@pytest.fixture
def layer():
    return nn.Linear(4, 2)


@pytest.fixture
def path(layer, tmp_path):
    program = compile_module(layer, {"x": spec(3, 4)}).program
    sources = {"weight_sources": {name: [f"fc.{name}"] for name in program.weights}}
    for name, weights in (("plain.neff", None), ("inlined.neff", tmp_path / "w.safetensors")):
        save_file({f"fc.{key}": value.detach() for key, value in layer.named_parameters()}, tmp_path / "w.safetensors")
        write_program(tmp_path / name, program, name="fc", target=TARGET, metadata=sources, weights=weights)
    return tmp_path / "inlined.neff"


def test_inlined_weights_run(path, layer):
    artifact = open_artifact(path, target=TARGETS["trn1"])
    tensors = artifact.inlined_weights()
    bound = BoundProgram(
        artifact=artifact,
        tensors=tensors,
        weights=artifact.bind(tensors.value),
        host=lower(artifact.program, optlevel="1"),
        model_name="fc",
        instance=INSTANCES["inf2.xlarge"],
        target=TARGET,
    )
    x, loaded_model = torch.rand(3, 4), bound.load()
    torch.testing.assert_close(loaded_model.run("graph", [x])["output"], layer(x))
    loaded_model.close()


def test_weights_elsewhere_are_checked(path):
    artifact = open_artifact(path.parent / "plain.neff")
    assert artifact.inlined_weights() is None
    assert artifact.weight_sources == {"weight": ("fc.weight",), "bias": ("fc.bias",)}
    tensors = Choice(value=StateDict(tensors={"fc.weight": torch.rand(9, 9)}, origin="a test"), reason="")
    with pytest.raises(WeightsError) as error:
        artifact.bind(tensors.value)
    assert len(error.value.details["problems"]) == 2


def test_other_generations_and_files_are_rejected(path, tmp_path):
    with pytest.raises(TargetMismatchError):
        open_artifact(path, target=TARGETS["trn2"])
    with pytest.raises(TargetMismatchError):
        open_artifact(path).require_target(TARGETS["trn2"])
    (tmp_path / "cut.neff").write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError):
        open_artifact(tmp_path / "cut.neff")
