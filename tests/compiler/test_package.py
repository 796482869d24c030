"""Programs in NEFFs: the same program comes back, and a broken or forged one does not."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from optimum_neuron.compiler import read_program, write_program
from optimum_neuron.compiler.ir import IR_VERSION
from optimum_neuron.compiler.neff import open_neff, write_neff
from optimum_neuron.errors import ArtifactError, FormatVersionError, UnsupportedOperatorError
from optimum_neuron.hardware import TARGETS
from tests.programs import Calls, compile_module, run_program, spec
from tests.raising import raises


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, cache, table):
        cache[1:].copy_(x[:1] * table)
        return torch.tanh(self.linear(x) + cache)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.register_buffer("table", torch.rand(4), persistent=False)

    def forward(self, x, states):
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state, self.table)
        return x


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.fixture(scope="module")
def program(model):
    states = {f"cache.{index}": spec(2, 4) for index in range(3)}
    return compile_module(model, {"x": spec(2, 4)}, states=states).program


@pytest.fixture
def neff_path(program, tmp_path):
    write_program(tmp_path / "m.neff", program, name="m", target=TARGETS["inf2"], metadata={"family": "x"})
    return tmp_path / "m.neff"


def members(path):
    with open_neff(path) as neff:
        return {name: bytes(neff.read(name)) for name in neff.names}


def test_programs_in_use_share_bodies(neff_path, tmp_path):
    (tmp_path / "copy.neff").write_bytes(neff_path.read_bytes())
    first, second = (read_program(open_neff(path)) for path in (neff_path, tmp_path / "copy.neff"))
    assert first.subprograms and all(second.subprograms[name] is body for name, body in first.subprograms.items())


def forged(path, changes):
    """The NEFF with other members, valid as a container."""
    content = {name: data for name, data in (members(path) | changes).items() if data is not None}
    target = path.with_name("forged.neff")
    write_neff(target, content, name="m", target="inf2", core_version=2, compiler_version="1", metadata={})
    return target


def read(path):
    with open_neff(path) as neff:
        return read_program(neff)


def test_program_round_trip_keeps_hash_and_results(model, program, neff_path):
    second = read(neff_path)
    assert second.content_hash() == program.content_hash() and second.structure() == program.structure()
    assert torch.equal(second.constants["table"], model.table)
    x = torch.randn(2, 4)
    states = [torch.zeros(2, 4) for _ in range(3)]
    first, expected = [state.clone() for state in states], [state.clone() for state in states]
    actual = run_program(second, model, [x], first)["output"]
    assert torch.equal(actual, run_program(program, model, [x], expected)["output"])
    assert all(torch.equal(a, b) and a.any() for a, b in zip(first, expected, strict=True))
    assert torch.equal(actual, model(x, states))


def test_container_has_target_and_metadata_and_is_reproducible(program, neff_path, tmp_path):
    with open_neff(neff_path) as neff:
        assert (neff.document.target, neff.document.core_version) == ("inf2", 2)
        assert dict(neff.metadata) == {"family": "x"} and "weights.safetensors" not in neff.names
    write_program(tmp_path / "again.neff", read(neff_path), name="m", target=TARGETS["inf2"], metadata={"family": "x"})
    assert (tmp_path / "again.neff").read_bytes() == neff_path.read_bytes()


def test_weights_are_inlined_on_request(model, program, tmp_path):
    path, weights = tmp_path / "m.neff", tmp_path / "weights.safetensors"
    save_file(model.state_dict(), weights)
    write_program(path, program, name="m", target=TARGETS["trn2"], metadata={}, weights=weights)
    assert members(path)["weights.safetensors"] == weights.read_bytes()


def test_newer_ir_is_refused_before_reading_the_rest(neff_path):
    data = json.dumps({"ir_version": IR_VERSION + 1, "graphs": "of another kind"}).encode()
    with pytest.raises(FormatVersionError) as error:
        read(forged(neff_path, {"program.json": data}))
    assert error.value.details["ir_version"] == IR_VERSION + 1


def test_renamed_body_is_refused(program, neff_path):
    name = next(iter(program.subprograms))
    body = json.loads(members(neff_path)[f"bodies/{name}.json"])
    body["nodes"][-1]["op"] = "aten.relu.default"
    path = forged(neff_path, {f"bodies/{name}.json": json.dumps(body).encode()})
    with pytest.raises(ArtifactError) as error:
        read(path)
    assert error.value.details == {"subprogram": name}


@pytest.mark.parametrize("op", ["aten.from_file.default", "aten.resize_.default", "aten._unsafe_index.Tensor"])
def test_body_with_disallowed_operator_is_refused(program, neff_path, op):
    name = next(iter(program.subprograms))
    body = json.loads(members(neff_path)[f"bodies/{name}.json"])
    body["nodes"][-1]["op"] = op
    with pytest.raises(ArtifactError) as excinfo:
        read(forged(neff_path, {f"bodies/{name}.json": json.dumps(body).encode()}))
    assert excinfo.value.details == {"operators": [op], "subprogram": name}


def test_unreadable_program_is_not_written(tmp_path):
    module = Calls(lambda x: torch.ops.aten._unsafe_index(x, [torch.tensor([0])]))
    program = compile_module(module, {"x": spec(2, 4)}, allow_host_ops=("aten._unsafe_index",)).program
    with pytest.raises(UnsupportedOperatorError) as excinfo:
        write_program(tmp_path / "m.neff", program, name="m", target=TARGETS["inf2"], metadata={})
    assert excinfo.value.details == {"operators": ["aten._unsafe_index.Tensor"]}
    assert not (tmp_path / "m.neff").exists()


def change_program(neff_path, change):
    data = json.loads(members(neff_path)["program.json"])
    change(data)
    return {"program.json": json.dumps(data).encode()}


BROKEN = {
    "no bodies": (lambda data: data.update(subprograms={}), "no subprogram"),
    "undeclared weight": (lambda data: data["weights"].pop("layers.1.linear.weight"), "is not defined"),
    "other shape": (lambda data: data["states"]["cache.0"].update(shape=[3, 4]), "the body takes"),
    "no graphs": (lambda data: data.pop("graphs"), "KeyError"),
    "no calls": (lambda data: data["graphs"]["graph"].pop("calls"), "KeyError"),
    "shape of text": (lambda data: data["weights"].update(x={"shape": 3, "dtype": "float32"}), "TypeError"),
    "no version": (lambda data: data.pop("ir_version"), "KeyError"),
}


@pytest.mark.parametrize(("change", "problem"), BROKEN.values(), ids=BROKEN)
def test_inconsistent_program_is_refused(neff_path, change, problem):
    path = forged(neff_path, change_program(neff_path, change))
    with raises(ArtifactError, path=str(path)) as excinfo:
        read(path)
    assert problem in excinfo.value.details["error"]


@pytest.mark.parametrize(
    "changes",
    [
        {"program.json": b"{"},
        {"program.json": b"\xff"},
        {"program.json": b"[" * 100_000},
        {"constants.safetensors": b"junk"},
        {"program.json": None},
    ],
    ids=["json", "text", "nested", "constants", "missing"],
)
def test_unreadable_members_are_refused(neff_path, changes):
    with pytest.raises(ArtifactError):
        read(forged(neff_path, changes))
