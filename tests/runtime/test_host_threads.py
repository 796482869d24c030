"""Threads of torch that wait in another thread's team are given back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import time, torch
from optimum_neuron.runtime import rest_threads
def num_threads():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("Threads:")).split()[1])
torch.set_num_threads(2)
numbers = torch.ones(1 << 20)
for _ in range(2):
    assert float(numbers.mul(2).sum()) == 2 * len(numbers)
    working, end = num_threads(), time.monotonic() + 20
    assert rest_threads() and rest_threads()
    while num_threads() >= working:
        assert time.monotonic() < end
        time.sleep(0.01)
"""


@pytest.mark.full(days=2)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it reads Linux's table of threads")
def test_a_team_ends_and_starts_again():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
