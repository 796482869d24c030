"""Processor time and memory of the host: shares of a period, and processes that cannot be looked at."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from optimum_neuron.tools.host import CPU_FIELDS, cpu_percent, cpu_times, mean_percent, process_use


def times(**seconds):
    return dict.fromkeys(CPU_FIELDS, 0.0) | seconds


def test_shares_are_of_time_between_two_readings():
    before = (times(user=10.0, idle=5.0), times(user=1.0))
    after = (times(user=11.0, idle=8.0), times(user=1.0, system=2.0))
    shares = cpu_percent(before, after)
    assert (shares[0]["user"], shares[0]["idle"], shares[0]["nice"]) == (25.0, 75.0, 0.0)
    assert shares[1]["system"] == 100.0
    mean = mean_percent(shares)
    assert (mean["user"], mean["idle"], mean["system"]) == (12.5, 37.5, 50.0)


def test_zero_elapsed_time_has_zero_utilization():
    now = cpu_times()
    assert {value for share in cpu_percent(now, now) for value in share.values()} == {0.0}
    assert set(mean_percent([]).values()) == {0.0}


def test_counter_resets_and_new_vcpus_are_handled():
    assert cpu_percent((times(user=5.0),), (times(user=4.0, idle=1.0), times(user=1.0)))[0]["idle"] == 100.0


def test_every_vcpu_is_counted():
    result = cpu_times()
    assert len(result) == psutil.cpu_count() and all(set(times) == set(CPU_FIELDS) for times in result)


def test_live_and_ended_process():
    own = process_use(os.getpid())
    assert own.error == "" and own.memory_bytes > 2**20 and own.user_s > 0
    excinfo = subprocess.Popen([sys.executable, "-c", ""])
    excinfo.wait()
    gone = process_use(excinfo.pid)
    assert str(excinfo.pid) in gone.error and (gone.user_s, gone.system_s, gone.memory_bytes) == (0.0, 0.0, 0)
    assert process_use(2**40).error, "no process can have this id"


def test_process_of_another_user_is_labelled(no_process_can_be_read):
    assert process_use(1).error
