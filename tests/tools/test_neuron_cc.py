"""`neuron-cc`: an exported program for Inf1, the list of operators, and flags of the other compiler."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.tools import neuron_cc


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    torch.export.save(torch.export.export(module, (torch.rand(2, 8),)), path)
    return path


@pytest.mark.parametrize(("words", "auto_cast"), [([], "all"), (["--fast-math", "none"], "matmul")])
def test_program_is_compiled_for_inf1(program, tmp_path, words, auto_cast):
    output = tmp_path / "out.neff"
    assert neuron_cc.main(["compile", str(program), *words, "--output", str(output)]) == 0
    neff = open_neff(output)
    assert (neff.document.target, neff.document.core_version, neff.metadata["auto_cast"]) == ("inf1", 1, auto_cast)


def test_operators_are_listed(capsys):
    assert neuron_cc.main(["list-operators"]) == 0
    assert "aten::linear\n" in capsys.readouterr().out
    assert neuron_cc.main(["list-operators", "--framework", "MXNET"]) != 0


@pytest.mark.parametrize("words", [["--auto-cast", "matmult"], ["--neuroncore-pipeline-cores", "2"]])
def test_flags_that_it_does_not_take_are_errors(program, words, capsys):
    assert neuron_cc.main(["compile", str(program), *words]) != 0
    assert words[0] in capsys.readouterr().err


def test_unsupported_operators_are_refused(tmp_path, capsys):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Embedding(4, 2), (torch.tensor([1]),)), path)
    assert neuron_cc.main(["compile", str(path), "--output", str(tmp_path / "a.neff")]) != 0
    assert "aten.embedding.default" in capsys.readouterr().err
