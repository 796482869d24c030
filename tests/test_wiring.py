"""The runtime calls packages above it through hooks; nothing else connects them."""

from __future__ import annotations

from optimum_neuron import profiling, simulator
from optimum_neuron.runtime import HOOKS


def test_hooks_connect_simulator_and_profiler(monkeypatch):
    monkeypatch.setattr(simulator, "known_cost", lambda *arguments: ("cost", *arguments))
    monkeypatch.setattr(profiling, "inspect_process", lambda *arguments: folders.append(arguments))
    folders = []
    assert HOOKS.call_cost("track", "graph") == ("cost", "track", "graph")
    HOOKS.inspect_process("folder")
    assert folders == [("folder",)]
