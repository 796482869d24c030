"""`optimum-cli neuron serve`, up to the server; `tests/serving/` tests what it answers."""

from __future__ import annotations

import importlib.util


def test_a_missing_package_is_named(cli, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "fastapi" else found(name, *a))
    result = cli("neuron", "serve", "smollm2", "--json")
    assert result.code == 1
    assert result.json["error"]["details"]["packages"] == ["fastapi"]
