"""`optimum-cli neuron train` prints the losses once for all processes; the training itself is replaced."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("ignored", "last"), [((), "checkpoints: out"), (("trainer.log",), "without effect here: ")])
def test_one_process_answers(cli, fake_module, monkeypatch, ignored, last):
    losses = [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}]
    data = {"losses": losses, "output_dir": "out", "without_effect": list(ignored)}
    fake_module("optimum_neuron.nxd_training", train=lambda path: data)
    words = ("neuron", "train", "--config", "llama.yaml")
    lines = cli(*words).stdout.splitlines()
    assert ["2", "2.25"] in [line.split() for line in lines]
    assert lines[-1] == last + "".join(ignored)
    for rank, expected in ((0, "out\n"), (1, "")):
        monkeypatch.setenv("RANK", str(rank))
        assert cli(*words, "--quiet").stdout == expected
