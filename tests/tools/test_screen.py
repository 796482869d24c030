"""Frames of neuron-top: sections, tabs, keys, large instances, and unknown figures."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.tools.frame import Frame, ProcessFrame
from optimum_neuron.tools.host import ProcessUse
from optimum_neuron.tools.processes import NeuronProcess
from optimum_neuron.tools.screen import View, render
from optimum_neuron.tools.usage import usage_between
from tests.tools.conftest import graph, status

MIB = 2**20
LARGE = max(INSTANCES, key=lambda name: INSTANCES[name].num_chips)
HBM = {
    "bert": {"weights": 7 * MIB, "kv_cache": 0, "scratch": 3 * MIB, "code": 0},
    "microcode": {"weights": 0, "kv_cache": 0, "scratch": 0, "code": 96 * MIB},
}


def process(pid, core, *, has_status=True, name="bert", **options):
    fields = {"pid": pid, "tag": f"app{pid}", "cores": (core,), "hbm": HBM, "model_id": pid, "name": name}
    before, after = (
        status(at_s, graph(calls, flops=1e12, **options), **fields) for at_s, calls in ((10.0, 0), (11.0, 500))
    )
    uses = ({"core_id": core, "pid": pid, "model": "bert", "since": None, "command": "python chat.py"},)
    return ProcessFrame(
        process=NeuronProcess(pid=pid, command="python chat.py", uses=uses, status=after if has_status else None),
        usage=usage_between(before, after) if has_status else None,
        host=ProcessUse(memory_bytes=200 * MIB),
        user_percent=12.5,
        system_percent=2.5,
    )


def frame(*processes, instance="inf2.xlarge", others=()):
    return Frame(
        instance=INSTANCES[instance],
        processes=processes,
        user_percent=40.0,
        system_percent=10.0,
        memory_total_bytes=8 * 1024 * MIB,
        memory_used_bytes=4 * 1024 * MIB,
        others=others,
    )


TWO = frame(process(1, 0), process(2, 1))


def drawn(what, view=None, *, width=120, **options):
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render(what, view or View(), **options))
    return capture.get()


def test_all_processes_together():
    output = drawn(TWO)
    assert "instance-type: inf2.xlarge" in output and "(simulated)" in output and ">all<" in output
    assert "NeuronCore v2 Utilization, simulated" in output
    assert output.count("50.0%") == 2  # 500 calls of 2 ms each in a second of other things
    assert "Runtime vCPU usage  user  25.0%  system   5.0%" in output
    (device,) = [line for line in output.splitlines() if line.startswith("Device Used Memory")]
    assert device.split()[3:] == ["212.000MB", "0B", "14.000MB", "192.000MB", "6.000MB"]
    assert "4.000GB of 8.000GB of the host in use" in output
    assert "500.0" in output and "2.000 ms" in output and "bert (1)" in output and "bert (2)" in output
    assert "106.000MB of 16.000GB" in output and "--instance" not in output


def test_model_without_memory_has_its_calls():
    eager = process(1, 0, name="eager operators")
    (line,) = [line for line in drawn(frame(eager)).splitlines() if "eager operators" in line]
    assert line.split()[2:] == ["(1)", "500.0", "2.000", "ms", "0B"]


def test_one_process_of_them():
    output = drawn(TWO, View(tab=2))
    assert ">app2<" in output and "bert (2)" in output and "bert (1)" not in output
    assert output.count("50.0%") == 1 and "free" in output
    assert "Runtime vCPU usage  user  12.5%" in output


def test_tab_of_ended_process_shows_all():
    assert ">all<" in drawn(frame(process(1, 0)), View(tab=2))


def test_operations_instead_of_utilization_and_no_details():
    output = drawn(TWO, View(flops=True, expanded=False))
    assert "NeuronCore v2 TFLOPS, simulated" in output and "250.000" in output and "50.0%" not in output
    assert "bert (1)" not in output and "app1" in output


def test_no_processes():
    output = drawn(frame())
    assert "no process holds a core" in output and output.count("free") == 2 and "..." not in output


def test_unknown_figures_are_not_zero():
    silent, untimed = process(1, 0, has_status=False), process(2, 1, device_us=None)
    output = drawn(frame(silent, untimed))
    assert "unknown" in output and output.count("...") == 2 and "0.0%" not in output.split("VCPU")[0]
    assert "500.0" in output and " ms" not in output
    assert not frame(silent).complete and not frame(untimed).complete and frame().complete and TWO.complete


def test_large_instance_shows_used_devices():
    output = drawn(frame(process(1, 130), instance=LARGE), width=160)
    assert "more devices, all idle" in output and "ND 32" in output and "ND 31" not in output


def test_logical_cores_are_named():
    output = drawn(frame(process(1, 4), instance="trn2.48xlarge"))
    assert "NeuronCore v3d" in output and "logical-neuroncore-config: 2" in output and "ND 15" in output


def test_other_instances_and_keys_are_named():
    assert "processes hold cores of trn1.2xlarge too" in drawn(frame(others=("trn1.2xlarge",)))
    assert "q quit" in drawn(frame(), keys=True)


def test_long_command_keeps_columns_aligned():
    long = process(1, 0)
    long = dataclasses.replace(long, process=dataclasses.replace(long.process, command="python -c " + "x" * 500))
    output = drawn(frame(long), width=100)
    assert "500.0" in output and "2.000 ms" in output and "200.000MB" in output and "106.000MB of 16.000GB" in output


@pytest.mark.parametrize("width", [40, 80, 200])
def test_frame_fits_terminal(width):
    assert max(map(len, drawn(TWO, width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        *((keys, View()) for keys in ("9", "0", "da", "a", "ff", "\x1b[?", "\ufffd")),
        *((keys, View(tab=2)) for keys in ("dd", "ddd", "3")),
        ("2", View(tab=1)),
        ("F", View(flops=True)),
        ("x", View(expanded=False)),
    ],
)
def test_keys(keys, expected):
    view = View()
    for key in keys:
        view = view.pressed(key, TWO)
    assert view == expected
