"""Frames: rates since the frame before, tabs, and processes that come and go."""

from __future__ import annotations

import os

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores
from optimum_neuron.tools import frame as frames
from optimum_neuron.tools.frame import Camera
from optimum_neuron.tools.host import ProcessUse
from tests.waiting import soon

SMALL = INSTANCES["inf2.xlarge"]


def test_idle_instance():
    frame = Camera("trn1.2xlarge").take(0.0)
    assert (frame.instance.name, frame.processes, frame.tabs, frame.others) == ("trn1.2xlarge", (), ("all",), ())
    assert frame.complete and 0 < frame.memory_used_bytes < frame.memory_total_bytes


def test_process_appears_is_reported_and_disappears():
    camera, now_s = Camera(None), 0.0
    with claim_cores(SMALL, model="bert"):
        (process,) = camera.take(now_s).processes
        assert process.usage is None and process.process.pid == os.getpid()
        frame = soon(lambda: (frame := camera.take(now_s)).complete and frame)
        assert frame.tabs == ("all", str(os.getpid())) and frame.selected(1) == frame.selected(0) == frame.processes
        assert frame.selected(7) == frame.processes
    assert camera.take(now_s).processes == ()


def test_processor_time_is_of_time_between_two_frames(monkeypatch):
    spent = iter([ProcessUse(user_s=5.0, system_s=1.0), ProcessUse(user_s=7.0, system_s=1.5), ProcessUse(user_s=1.0)])
    monkeypatch.setattr("optimum_neuron.tools.processes.process_use", lambda pid: next(spent))
    monkeypatch.setattr(frames.psutil, "cpu_count", lambda: 4)
    camera = Camera(None)
    with claim_cores(SMALL, model="bert"):
        processes = [process for at_s in (10.0, 12.0, 14.0) for process in camera.take(at_s).processes]
    shares = [(process.user_percent, process.system_percent) for process in processes]
    # 2 s and 0.5 s of 4 vCPUs for 2 s; a counter that steps back is another process of that id.
    assert shares == [(0.0, 0.0), pytest.approx((25.0, 6.25)), (0.0, 0.0)]
