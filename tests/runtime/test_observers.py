"""Sources count while an observer is registered, from the first observer to the last."""

from __future__ import annotations

from optimum_neuron.runtime.observers import Observers


class Source:
    def __init__(self):
        self.said = []

    def watch(self, watched):
        self.said.append(watched)

    def collect(self):
        self.said.append("collect")


def test_source_runs_from_first_observer_to_last():
    observers, source = Observers(), Source()
    observers.add(source)
    with observers.watching():
        observers.watch("tool")
        observers.watch("tool")
        observers.collect()
    observers.watch("tool", False)
    observers.watch("tool", False)
    assert source.said == [False, True, "collect", False]


def test_late_source_is_watched_at_once():
    observers, source = Observers(), Source()
    with observers.watching():
        observers.add(source)
    assert source.said == [True, False]


def test_forked_child_is_not_watched():
    observers, source = Observers(), Source()
    observers.watch("tool")
    observers.forget()
    observers.add(source)
    assert source.said == [False]
