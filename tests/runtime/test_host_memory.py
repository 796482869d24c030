"""Freed memory stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from optimum_neuron.runtime.executor import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    return [torch.zeros(4 * 1024**2).add_(1) for _ in range(6)]
step(), step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""
LARGE = """
import pathlib, torch
from optimum_neuron.runtime.executor import keep_freed_memory
assert keep_freed_memory()
blocks = [torch.empty(2 * 1024**3, dtype=torch.uint8) for _ in range(2)]
heap = next(line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]"))
start, end = (int(address, 16) for address in heap.split()[0].split("-"))
print(end - start)
"""


@pytest.mark.full(days=3)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_large_results_fault_pages_once():
    counts = [
        int(subprocess.run([sys.executable, "-c", SCRIPT.format(keep=keep)], capture_output=True, text=True).stdout)
        for keep in (False, True)
    ]
    assert counts[1] < counts[0] / 4, counts


@pytest.mark.full(days=2)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_the_heap_has_no_large_blocks():
    heap_bytes = int(subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True).stdout)
    assert heap_bytes < 1024**3, "one mapping larger than the memory of the machine cannot be forked"
