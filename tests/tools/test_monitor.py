"""`neuron-monitor`: the documented schema, periods, filters; a process that runs, one that is killed, errors."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, claims_folder, status_path, write_status
from optimum_neuron.tools import monitor
from optimum_neuron.tools.monitor import reports
from optimum_neuron.tools.monitor_config import parse_config
from tests.runtime.conftest import start  # noqa: F401  a fixture: another process that claims cores
from tests.tools.conftest import EVERYTHING, ROOT, graph, status
from tests.waiting import soon

SMALL = INSTANCES["inf2.xlarge"]
MICROCODE = 96 * 2**20


def fields(kind, names):
    return dict.fromkeys(names.split(), kind)


GROUP = {"period": float, "error": str}
PERCENTILES = fields(float, "p0 p1 p25 p50 p75 p99 p100")
HOST_MEMORY = fields(int, "application_memory constants dma_buffers tensors")
CPU = fields(float, "user nice system idle io_wait irq soft_irq")
MODEL_MEMORY = fields(int, "constants model_code runtime_memory tensors")
CORE_MEMORY = MODEL_MEMORY | {"model_shared_scratchpad": int}
TOTALS = fields(int, "host neuron_device")
SUBGRAPH = {
    "memory_used_bytes": TOTALS | {"usage_breakdown": {"host": HOST_MEMORY, "neuron_device": MODEL_MEMORY}},
    **fields(int, "neuroncore_index neuron_device_index"),
}
OUTCOMES = "completed completed_with_err completed_with_num_err timed_out incorrect_input failed_to_queue"
RUNTIME_GROUPS = {
    "neuroncore_counters": {"neuroncores_in_use": {"0": {"neuroncore_utilization": float, "flops": int}}, **GROUP},
    "execution_stats": {
        "error_summary": fields(int, "generic numerical transient model runtime hardware"),
        "execution_summary": fields(int, OUTCOMES),
        "latency_stats": {"total_latency": PERCENTILES, "device_latency": PERCENTILES},
        **GROUP,
    },
    "memory_used": {
        "neuron_runtime_used_bytes": TOTALS
        | {"usage_breakdown": {"host": HOST_MEMORY, "neuroncore_memory_usage": {"0": CORE_MEMORY}}},
        "loaded_models": [
            {"name": str, "uuid": str, "model_id": int, "is_running": bool, "subgraphs": {"sg_00": SUBGRAPH}}
        ],
        **GROUP,
    },
    "neuron_runtime_vcpu_usage": {"vcpu_usage": {"user": float, "system": float}, **GROUP},
}
ECC = "mem_ecc_corrected mem_ecc_uncorrected sram_ecc_uncorrected sram_ecc_corrected"
SCHEMA = {
    "neuron_runtime_data": [{"pid": int, "report": RUNTIME_GROUPS, **fields(str, "address neuron_runtime_tag error")}],
    "system_data": {
        "neuron_hw_counters": {"neuron_devices": [fields(int, f"neuron_device_index {ECC}")], **GROUP},
        "vcpu_usage": {
            "average_usage": CPU,
            "usage_data": {str(cpu): CPU for cpu in range(os.cpu_count() or 1)},
            "context_switch_count": int,
            **GROUP,
        },
        "memory_info": fields(int, "memory_total_bytes memory_used_bytes swap_total_bytes swap_used_bytes") | GROUP,
    },
    "instance_info": fields(
        str,
        "instance_name instance_id instance_type instance_availability_zone instance_availability_zone_id "
        "instance_region ami_id subnet_id error",
    ),
    "neuron_hardware_info": {
        **fields(str, "neuron_device_type neuron_device_version neuroncore_version error"),
        **fields(int, "neuron_device_count neuron_device_memory_size neuroncore_per_device_count"),
        "logical_neuroncore_config": int,
    },
    "simulated": bool,
}
"""The documented keys, with the kinds of their values, and `simulated`: no key more and none less."""


def shape(value):
    """Keys and kinds of plain data."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value)


class Clock:
    """Simulated time that passes in sleeps."""

    now_s = 1000.0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


def simulated_reports(config, count, *, instance=None, say=lambda level, text: None, between=lambda clock: None):
    """The first reports of a configuration with their times, on a simulated clock."""
    clock, results = Clock(), []

    def sleep(seconds):
        clock.sleep(seconds)
        between(clock)

    for line in itertools.islice(reports(parse_config(config, ""), instance, clock=clock, sleep=sleep, say=say), count):
        results.append((clock.now_s - 1000.0, line))
    return results


def tell(clock, num_calls, *, instance=SMALL, cores=(0,), timed=True, **fields):
    """Write a status of this process at the clock's time, in place of its own status."""
    calls = graph(num_calls, device_us=250_000.0 if timed else None, launch_us=50_000.0)
    hbm = {"bert": {"weights": 5, "kv_cache": 6, "scratch": 7, "code": 8}, "microcode": {"code": MICROCODE}}
    output = status(clock(), calls, pid=os.getpid(), cores=cores, hbm=hbm, model_id=4, **fields)
    write_status(claims_folder(instance), output)


@pytest.fixture
def silent_claim(monkeypatch):
    """A core that this process holds without publishing a status."""
    monkeypatch.setattr("optimum_neuron.runtime.publisher.Publisher._write", lambda *_: None)
    with claim_cores(SMALL, model="bert") as claim:
        yield claim


def first_line(process):
    """The first line of a monitor that shows a call with its simulated time."""
    for line in process.stdout:
        output = json.loads(line)
        stats = output["neuron_runtime_data"][0]["report"]["execution_stats"] if output["neuron_runtime_data"] else None
        if stats and stats["latency_stats"]["total_latency"]:
            return output
    raise AssertionError("it ended")


def test_running_process_is_reported_in_documented_schema(running, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(EVERYTHING))
    command = [sys.executable, "-m", "optimum_neuron.tools.monitor", "-c", str(tmp_path / "m.json")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=environ) as process:
        output = first_line(process)
        process.kill()
    assert shape(output) == SCHEMA
    (runtime,) = output["neuron_runtime_data"]
    assert (runtime["pid"], runtime["neuron_runtime_tag"], runtime["error"]) == (running.pid, "my_app", "")
    result = runtime["report"]
    assert {group["error"] for group in (*result.values(), *output["system_data"].values())} == {""}
    assert 0 < result["neuroncore_counters"]["neuroncores_in_use"]["0"]["neuroncore_utilization"] < 100
    assert result["neuroncore_counters"]["neuroncores_in_use"]["0"]["flops"] > 0
    assert result["execution_stats"]["execution_summary"]["completed"] > 0
    latency = result["execution_stats"]["latency_stats"]
    assert latency["total_latency"]["p0"] == latency["total_latency"]["p100"] > latency["device_latency"]["p50"] > 0
    (model,) = result["memory_used"]["loaded_models"]
    assert model["name"] == "Linear" and model["is_running"] is True
    used = result["memory_used"]["neuron_runtime_used_bytes"]
    assert used["usage_breakdown"]["neuroncore_memory_usage"]["0"]["constants"] == 64 * 65 * 4
    assert used["neuron_device"] > MICROCODE and used["host"] > 2**20
    assert output["instance_info"]["instance_type"] == "inf2.xlarge" and output["simulated"] is True
    assert output["neuron_hardware_info"]["neuron_device_type"] == "inferentia2"


def test_exporter_fields_exist_without_processes():
    ((at_s, output),) = simulated_reports(EVERYTHING, 1, instance="trn2.48xlarge")
    assert at_s == 1.0 and output["neuron_runtime_data"] == []
    assert shape(output["system_data"]["vcpu_usage"]) == SCHEMA["system_data"]["vcpu_usage"]
    assert len(output["system_data"]["neuron_hw_counters"]["neuron_devices"]) == 16
    assert output["neuron_hardware_info"] == {
        "neuron_device_type": "trainium2", "neuron_device_version": "v4", "neuroncore_version": "v3d",
        "neuron_device_count": 16, "neuron_device_memory_size": 103079215104, "neuroncore_per_device_count": 4,
        "logical_neuroncore_config": 2, "error": "",
    }  # fmt: skip


def test_counts_cover_the_period_in_single_lines(silent_claim):
    config = {"period": "1s", "neuron_runtimes": [{"metrics": [{"type": "execution_stats", "period": "2s"}]}]}
    config["system_metrics"] = [{"type": "memory_info"}]
    tell(Clock(), 10)
    calls = itertools.count(11)
    output = simulated_reports(config, 4, between=lambda clock: tell(clock, next(calls), errors={"incorrect_input": 2}))
    assert [at_s for at_s, _ in output] == [1.0, 2.0, 3.0, 4.0]
    stats = [line["neuron_runtime_data"][0]["report"].get("execution_stats") for _, line in output]
    assert stats[0] is None and stats[2] is None  # the process stays in the line: it did not end
    assert [stats[place]["execution_summary"]["completed"] for place in (1, 3)] == [2, 2]
    assert [stats[place]["execution_summary"]["incorrect_input"] for place in (1, 3)] == [2, 0]
    assert stats[1]["period"] == 2.0 and stats[1]["latency_stats"]["total_latency"]["p50"] == 0.25
    assert stats[1]["latency_stats"]["device_latency"]["p99"] == pytest.approx(0.2)
    assert all("memory_info" in line["system_data"] for _, line in output)


def test_utilization_and_memory_by_tools_names(silent_claim):
    metrics = [{"type": "neuroncore_counters"}, {"type": "memory_used"}]
    config = {"period": "1s", "neuron_runtimes": [{"metrics": metrics}]}
    tell(Clock(), 0)
    ((_, output),) = simulated_reports(config, 1, between=lambda clock: tell(clock, 4))
    result = output["neuron_runtime_data"][0]["report"]
    # Four calls of 0.25 s that the host simulated in no time, next to 1 s of other work.
    core = {"neuroncore_utilization": pytest.approx(50.0), "flops": 2 * 10**9}
    assert result["neuroncore_counters"]["neuroncores_in_use"] == {"0": core}
    memory = result["memory_used"]["neuron_runtime_used_bytes"]
    assert memory["usage_breakdown"]["neuroncore_memory_usage"]["0"] == {
        "constants": 5, "model_code": 8 + MICROCODE, "model_shared_scratchpad": 7, "runtime_memory": 0, "tensors": 6,
    }  # fmt: skip
    assert memory["neuron_device"] == 26 + MICROCODE
    (model,) = result["memory_used"]["loaded_models"]
    assert (model["name"], model["model_id"], len(model["uuid"])) == ("bert", 4, 32)
    assert model["subgraphs"]["sg_00"]["memory_used_bytes"]["neuron_device"] == 26


def test_physical_cores_of_logical_one_are_reported(monkeypatch):
    monkeypatch.setattr("optimum_neuron.runtime.publisher.Publisher._write", lambda *_: None)
    where = {"instance": INSTANCES["trn2.48xlarge"], "cores": (5,)}
    config = {"period": "1s", "neuron_runtimes": [{"metrics": [{"type": "neuroncore_counters"}]}]}
    with claim_cores(where["instance"], model="bert", start=5):
        tell(Clock(), 0, **where)
        ((_, output),) = simulated_reports(config, 1, between=lambda clock: tell(clock, 4, **where))
    (core,) = output["neuron_runtime_data"][0]["report"]["neuroncore_counters"]["neuroncores_in_use"].values()
    half = {"neuroncore_utilization": pytest.approx(50.0)}
    assert core["v3d"] == {"nc_v3.10": half, "nc_v3.11": half}


def test_first_matching_tag_filter_applies(silent_claim):
    def groups(*filters):
        runtimes = [{"tag_filter": text, "metrics": [{"type": name}]} for text, name in filters]
        tell(Clock(), 0)
        ((_, output),) = simulated_reports({"neuron_runtimes": runtimes}, 1)
        return [list(runtime["report"]) for runtime in output["neuron_runtime_data"]]

    assert groups(("^ch", "memory_used"), (".*", "execution_stats")) == [["memory_used"]]
    assert groups(("^x", "memory_used"), ("at$", "execution_stats")) == [["execution_stats"]]
    assert groups(("^x", "memory_used")) == []


def test_unknown_times_are_a_group_error(silent_claim):
    tell(Clock(), 0, models=())
    ((_, output),) = simulated_reports(EVERYTHING, 1, between=lambda clock: tell(clock, 3, timed=False))
    result = output["neuron_runtime_data"][0]["report"]
    assert all("being counted" in result[name]["error"] for name in ("neuroncore_counters", "execution_stats"))
    assert result["execution_stats"]["execution_summary"]["completed"] == 3 and result["memory_used"]["error"] == ""


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b'{"version": 1, "pid": 1}'])
def test_unreadable_status_is_a_process_error(silent_claim, content):
    if content is not None:
        status_path(claims_folder(SMALL), os.getpid()).write_bytes(content)
    messages = []
    ((_, output),) = simulated_reports(EVERYTHING, 1, say=lambda level, text: messages.append((level, text)))
    (runtime,) = output["neuron_runtime_data"]
    assert "has no readable status" in runtime["error"] and runtime["report"] == {}
    assert (1, runtime["error"]) in messages


def test_killed_process_vanishes(start):  # noqa: F811
    worker = start()
    worker.ask("claim", "bert")
    assert soon(status_path(claims_folder(SMALL), worker.pid).exists)

    def kill(clock):
        if clock() == 1003.0:
            worker.kill()

    output = [line["neuron_runtime_data"] for _, line in simulated_reports(EVERYTHING, 4, between=kill)]
    assert [[runtime["pid"] for runtime in runtimes] for runtimes in output] == [[worker.pid], [worker.pid], [], []]
    assert status_path(claims_folder(SMALL), worker.pid).exists()  # it could not remove it


def test_inaccessible_process_has_host_group_errors(silent_claim, no_process_can_be_read):
    tell(Clock(), 0)
    ((_, output),) = simulated_reports(EVERYTHING, 1)
    result = output["neuron_runtime_data"][0]["report"]
    assert result["neuron_runtime_vcpu_usage"]["error"] and result["memory_used"]["error"]
    assert result["neuron_runtime_vcpu_usage"]["vcpu_usage"] == {"user": 0.0, "system": 0.0}
    assert result["neuroncore_counters"]["error"] == ""


def test_late_reader_skips_missed_periods():
    clock = Clock()
    lines = reports(parse_config(EVERYTHING, ""), None, clock=clock, sleep=clock.sleep)
    next(lines)
    clock.now_s += 10.5
    line = next(lines)
    assert line["system_data"]["memory_info"]["period"] == 10.5
    next(lines)
    assert clock.now_s == 1012.5


def test_bad_lines_and_files_are_errors(capsys, tmp_path, mistyped):
    (tmp_path / "m.json").write_text('{"perod": "1s", "system_metrics": [{"type": "memory"}]}')
    assert monitor.main(["-c", str(tmp_path / "m.json")]) == 1
    output = capsys.readouterr().err
    assert "did you mean 'period'" in output and "did you mean 'memory_info'" in output
    for words, report in (("--verbose 5", "--verbose"), ("--config-fle x", "--config-file"), ("extra", "extra")):
        assert report in mistyped(monitor.main, *words.split())


def test_unusable_home_is_reported(capsys, tmp_path):
    (tmp_path / "cores").mkdir()
    (tmp_path / "cores" / "inf2.xlarge").write_text("")  # where the folder of the instance would be
    assert monitor.main([]) == 1
    assert "OPTIMUM_NEURON_HOME" in capsys.readouterr().err


def test_closed_pipe_ends_monitor_quietly(tmp_path):
    (tmp_path / "m.json").write_text('{"period": "0.1s", "system_metrics": [{"type": "memory_info"}]}')
    command = [sys.executable, "-m", "optimum_neuron.tools.monitor", "-c", str(tmp_path / "m.json"), "--verbose", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        assert json.loads(process.stdout.readline())["system_data"]["memory_info"]["memory_total_bytes"] > 0
        process.stdout.close()
        output = process.stderr.read()
    assert process.returncode == 141
    assert "reported: memory_info" in output and "Traceback" not in output and "BrokenPipe" not in output
