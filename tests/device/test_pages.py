"""Large blocks of host memory: freed blocks are reused, and few more are kept than tensors took."""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from pathlib import Path

import pytest
import torch

from tests.device.test_memory import MIB, resident_bytes
from tests.waiting import in_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def block(num_mib):
    return torch.empty(int(num_mib * MIB), dtype=torch.uint8, device="neuron")


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    torch.neuron.empty_cache()
    yield
    torch.neuron.empty_cache()


def test_freed_block_is_split_and_joined():
    whole = block(48)
    start = whole.data_ptr()
    del whole
    parts = [block(16) for _ in range(3)]
    assert [part.data_ptr() - start for part in parts] == [32 * MIB, 16 * MIB, 0]
    del parts[1]
    assert block(12).data_ptr() == start + 20 * MIB
    parts.clear()
    assert block(48).data_ptr() == start


def takes_huge_pages(tensor):
    """Return whether the kernel was asked for huge pages at a tensor's address."""
    result = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            start, end = (int(address, 16) for address in first.split("-"))
            result = start <= tensor.data_ptr() < end
        elif first == "VmFlags:" and result:
            return "hg" in rest.split()
    raise AssertionError("no such address")


@pytest.mark.full(days=4)
@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages on this machine")
def test_block_ownership():
    x = torch.ones(512, 512, device="neuron")
    compiled_fn = torch.compile(lambda x: (x.sin() @ x.cos()).relu(), backend="neuron")
    actual = {"factory": x, "operator": x + 1, "copy": torch.ones(512, 512).to("neuron"), "graph": compiled_fn(x)}
    # The system's own mappings: smaller blocks may lie in the heap where a packed weight, which asks too, was freed.
    large = torch.ones(12 * MIB, device="neuron")
    expected = {"cpu": torch.ones(12 * MIB), "copied to cpu": large.cpu()}
    assert {name: takes_huge_pages(tensor) for name, tensor in {**actual, **expected}.items()} == {
        **dict.fromkeys(actual, True),
        **dict.fromkeys(expected, False),
    }


def test_cached_memory_is_bounded_by_peak():
    # Sizes that grow fit into nothing that was freed before.
    before, taken = resident_bytes(), 0
    for num_mib in range(8, 128, 4):
        tensor = block(num_mib)
        tensor.fill_(1)
        taken = tensor.nbytes
        del tensor
    assert resident_bytes() - before < taken + 16 * MIB
    torch.neuron.empty_cache()
    assert resident_bytes() - before < 8 * MIB


@pytest.mark.full(days=2)
def test_no_two_blocks_overlap():
    def work(seed, problems):
        draws = random.Random(seed)
        kept = {}
        for number in range(300):
            tensor = block(draws.choice([0.2, 0.3, 1, 1.5, 3]))
            kept[number] = tensor.fill_(number % 251)
            if len(kept) > 12:
                old = draws.choice(list(kept))
                problems += [old] if not bool((kept.pop(old) == old % 251).all()) else []

    problems: list[int] = []
    in_threads(*(functools.partial(work, seed, problems) for seed in range(4)))
    assert problems == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_frees_its_blocks():
    tensor = block(8)
    host = torch.ones(MIB)
    child = os.fork()
    if child == 0:
        del tensor
        os._exit(0 if float((host + 1).sum()) == 2 * MIB else 1)
    assert os.waitpid(child, 0)[1] == 0 and tensor.fill_(3).sum() == 24 * MIB
