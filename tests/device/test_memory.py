"""HBM of device tensors: counted, limited, and shared with programs on the same core."""

from __future__ import annotations

import gc
import os
import platform
import sys
from pathlib import Path

import pytest
import torch

from optimum_neuron.device import placement

MIB = 2**20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_allocations_are_counted_and_freed():
    gc.collect()
    neuron, before = torch.neuron, torch.neuron.memory_allocated()
    x = torch.empty(1024, 1024, device="neuron")
    assert neuron.memory_allocated() - before == 4 * MIB
    y = x + 1
    view = y.view(-1)[3:]
    del y
    assert neuron.memory_allocated() - before == 8 * MIB
    del view
    assert neuron.memory_allocated() - before == 4 * MIB
    x.untyped_storage().resize_(0)
    assert neuron.memory_allocated() == before == torch.accelerator.memory_allocated()
    assert torch.neuron.memory_allocated(1) == 0


def test_peaks():
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.max_memory_allocated()
    del_me = torch.empty(MIB, device="neuron")
    del del_me
    assert torch.neuron.max_memory_allocated() - before == 4 * MIB
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other heaps decide by themselves what they keep")
def test_empty_cache_frees_host_memory():
    num_tensors, size_bytes = 1000, 64 * 1024
    kept = [torch.ones(size_bytes, dtype=torch.uint8, device="neuron") for _ in range(num_tensors)]
    del kept[::2]  # holes between tensors that stay
    allocated, before = torch.neuron.memory_allocated(), resident_bytes()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_allocated() == allocated
    assert before - resident_bytes() > num_tensors // 4 * size_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_read_only_zeros_take_no_host_memory():
    size_bytes = 64 * MIB
    before, allocated = resident_bytes(), torch.neuron.memory_allocated()
    zeros = torch.zeros(size_bytes // 4, device="neuron")
    assert not zeros.any() and resident_bytes() - before < size_bytes // 2
    assert torch.neuron.memory_allocated() - allocated == size_bytes
    zeros += 1
    assert zeros.sum() == size_bytes // 4
    del zeros
    assert torch.neuron.memory_allocated() == allocated and resident_bytes() - before < size_bytes // 2


def test_out_of_memory_error_has_a_table():
    before = torch.neuron.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match="(?s)usage: tensors.*HBM of core 0 of inf2.*torch tensors"):
        torch.empty(2**40, device="neuron")
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.memory_stats()["num_ooms"] > 0


def test_programs_and_tensors_share_core():
    torch.zeros(1, device="neuron:1")
    core = placement.claim(1)
    gc.collect()  # models of other tests
    others = torch.neuron.memory_usage(1)["weights"]
    free, total = torch.neuron.mem_get_info(1)
    weights = core.charge("weights", free - 3 * MIB, owner="model")
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="neuron:1")
    with pytest.raises(torch.OutOfMemoryError, match="(?s)model.*Release 'model'"):
        torch.empty(2 * MIB, dtype=torch.uint8, device="neuron:1")
    with pytest.raises(MemoryError, match="torch tensors"):
        core.charge("weights", 2 * MIB, owner="other")
    assert torch.neuron.memory_usage(1)["weights"] - others == free - 3 * MIB
    assert "torch tensors" in torch.neuron.memory_summary(1)
    weights.release()
    assert torch.empty(4 * MIB, dtype=torch.uint8, device="neuron:1").numel() == 4 * MIB
    assert total == 16 * 2**30
    del kept


def test_summary_says_simulated():
    assert "simulated" in torch.neuron.memory_summary() and "peak" in torch.neuron.memory_summary()
    assert "peak" not in torch.neuron.memory_summary(abbreviated=True)
