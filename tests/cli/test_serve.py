"""`optimum-cli neuron serve`, up to the server; `tests/serving/` tests what it answers."""

from __future__ import annotations

import importlib.util


def test_a_missing_package_is_named(cli, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "fastapi" else found(name, *a))
    result = cli("neuron", "serve", "smollm2", "--json")
    assert result.code == 1
    assert result.json["error"]["details"]["packages"] == ["fastapi"]


def test_models_can_be_served_without_validation(cli, monkeypatch):
    served = []
    monkeypatch.setattr("optimum_neuron.serving.serve", lambda deployment, on_listening: served.append(deployment))
    for flag in ("--disable_validation", "--disable-validation"):
        assert cli("neuron", "serve", "somewhere/model", "--batch_size", "2", flag).code == 0
    for deployment in served:
        assert deployment.registry.models[0].spec.options == {"batch_size": 2, "disable_validation": True}
    assert len(served) == 2
