"""The runtime calls packages above it through hooks; nothing else connects them."""

from __future__ import annotations

from optimum_neuron.profiling import inspection
from optimum_neuron.runtime import HOOKS
from optimum_neuron.simulator import clock


def test_hooks_connect_simulator_and_profiler(monkeypatch):
    monkeypatch.setattr(clock, "call_cost", lambda *arguments: ("cost", *arguments))
    monkeypatch.setattr(inspection, "inspect_process", lambda *arguments: folders.append(arguments))
    folders = []
    assert HOOKS.call_cost("track", "graph") == ("cost", "track", "graph")
    HOOKS.inspect_process("folder")
    assert folders == [("folder",)]
