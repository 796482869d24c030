"""`neuronx-cc compile`: an exported program in, a NEFF out, the documented flags, and errors."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.tools import neuronx_cc


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    torch.export.save(torch.export.export(module, (torch.rand(2, 8),)), path)
    return path


def test_program_is_compiled_to_neff_for_target(program, tmp_path, capsys):
    output = tmp_path / "model.neff"
    words = ["--framework", "XLA", "--target", "trn2", "--auto-cast=matmult", "-O1", "--output", str(output)]
    assert neuronx_cc.main(["compile", str(program), *words]) == 0
    assert capsys.readouterr().out.endswith("Compiler status PASS\n")
    neff = open_neff(output)
    assert (neff.document.target, neff.metadata["auto_cast"], neff.metadata["optlevel"]) == ("trn2", "matmul", "1")


def test_flags_without_effect_are_named(program, tmp_path):
    with pytest.warns(UserWarning, match="--model-type transformer"):
        neuronx_cc.main(
            ["compile", "--model-type=transformer", "--target=inf2", f"--output={tmp_path / 'a.neff'}", str(program)]
        )


def test_default_output_name_matches_real_compiler(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert neuronx_cc.main(["compile", str(program)]) == 0
    assert open_neff("file.neff").document.target == "inf2"


@pytest.mark.parametrize("name", ["model.hlo.pb", "model.hlo", "missing.pt2", "broken.pt2"])
def test_invalid_program_is_error_without_traceback(name, tmp_path, capsys):
    (tmp_path / "broken.pt2").write_bytes(b"nothing")
    assert neuronx_cc.main(["compile", str(tmp_path / name), "--target", "trn1"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("error: ") and name in output and "Traceback" not in output


def test_missing_folder_is_error(program, tmp_path, capsys):
    assert neuronx_cc.main(["compile", str(program), "--output", str(tmp_path / "none" / "a.neff")]) == 1
    assert "--output" in capsys.readouterr().err


def test_unknown_flags_and_wrong_values_are_errors(program, capsys, mistyped):
    assert "--auto-cast" in mistyped(neuronx_cc.main, "compile", str(program), "--auto-cats", "all")
    assert neuronx_cc.main(["compile", str(program), "--auto-cast", "some"]) == 1
    assert "--auto-cast" in capsys.readouterr().err


def test_flags_of_the_other_compiler_name_it(program, capsys):
    assert neuronx_cc.main(["compile", str(program), "--fast-math", "all", "no-fast-relayout"]) == 1
    assert "--fast-math is a flag of neuron-cc" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as excinfo:
        neuronx_cc.main(["--version"])
    assert excinfo.value.code == 0 and "simulated" in capsys.readouterr().out
