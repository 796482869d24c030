"""A trace for ui.perfetto.dev: threads whose events nest, arrows that arrive, counters, times that add up."""

from __future__ import annotations

import collections
import json

import pytest

from optimum_neuron.profiling import perfetto, trace_events


@pytest.fixture(scope="module")
def trace(profile):
    return json.loads(json.dumps(trace_events(profile), allow_nan=False))


def events(trace, phase, **fields):
    return [e for e in trace["traceEvents"] if e["ph"] == phase and all(e.get(k) == v for k, v in fields.items())]


def test_each_core_is_a_process_and_each_engine_a_thread(trace, profile):
    processes = {e["pid"]: e["args"]["name"] for e in events(trace, "M", name="process_name")}
    assert len(processes) == 1 + len(profile.cores) and processes[1].startswith("host: measured")
    core = processes[100]
    assert core.startswith(f"NeuronCore {profile.cores[0].core_id} of {profile.machines[0].instance}, simulated")
    threads = {e["args"]["name"] for e in events(trace, "M", name="thread_name", pid=100)}
    assert threads == {"calls", "Tensor", "Vector and Scalar", "DMA", "Link"}


def test_threads_do_one_thing_at_time(trace):
    threads = collections.defaultdict(list)
    for event in events(trace, "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(threads) == 5  # the host, calls, three engines: one core has no links
    for (pid, tid), spans in threads.items():
        stack = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= begin + 1e-9:
                stack.pop()
            assert not stack or end <= stack[-1] + 1e-9, (pid, tid, begin, end)
            stack.append(end)
            assert len(stack) <= (2 if (pid, tid) == (100, 1) else 1)


def test_times_match_profile(trace, profile):
    calls = [e for e in events(trace, "X", pid=100, tid=1) if e["name"] != "launch"]
    assert sum(e["dur"] for e in calls) == pytest.approx(profile.device_us, abs=0.01)
    for tid, engine in ((2, "tensor"), (3, "vector"), (4, "dma")):
        busy = sum(graph.num_calls * graph.parts_us[engine] for graph in profile.graphs)
        output = events(trace, "X", pid=100, tid=tid)
        assert sum(e["dur"] for e in output) == pytest.approx(busy, abs=1e-3 * len(output))
    assert {"operator", "module", "line", "bound by"} <= events(trace, "X", pid=100, tid=2)[0]["args"].keys()


def test_arrows_link_host_to_each_call(trace, profile):
    prefix, arrived = ({e["id"]: e for e in events(trace, phase)} for phase in ("s", "f"))
    assert prefix.keys() == arrived.keys() == set(range(len(profile.calls)))
    for number, start in prefix.items():
        end = arrived[number]
        assert (start["pid"], end["pid"], start["cat"], start["name"]) == (1, 100, end["cat"], end["name"])
        assert start["ts"] <= end["ts"]
    assert len(events(trace, "X", pid=1, name="between calls")) == len(profile.calls) - 1


def test_counters_show_memory_and_load(trace, profile):
    (memory,) = events(trace, "C", name="HBM")
    assert memory["args"]["weights MiB"] == pytest.approx(profile.cores[0].hbm_bytes["weights"] / 2**20, abs=1e-3)
    loads = [e["args"] for e in events(trace, "C", name="utilization")]
    assert max(load["dma %"] for load in loads) > 50 and all(0 <= v <= 100 for load in loads for v in load.values())
    assert max(e["args"]["GB/s"] for e in events(trace, "C", name="HBM reads")) > 0


def test_trace_says_simulated(trace):
    assert trace["otherData"]["simulated"] is True and trace["otherData"]["assumptions"]


def test_truncated_trace_says_what_is_missing(profile, monkeypatch):
    whole = len(events(trace_events(profile), "X", pid=100)) + len(events(trace_events(profile), "C"))
    monkeypatch.setattr(perfetto, "MAX_OPERATOR_EVENTS", whole // 2)
    trace = trace_events(profile)
    assert any("are shown without their operators" in note for note in trace["otherData"]["notes"])
    assert len([e for e in events(trace, "X", pid=100, tid=1) if e["name"] != "launch"]) == len(profile.calls)
    assert 0 < len(events(trace, "X", pid=100, tid=2)) < whole // 2
