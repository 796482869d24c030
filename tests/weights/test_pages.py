"""Copies of weights: values, dtypes and layouts; huge pages are advice that changes none."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.weights.mapped import HUGE_PAGE_BYTES, concatenate, convert, empty


def test_joined_tensors_have_the_dtype_that_holds_all():
    tensors = [torch.arange(6, dtype=torch.bfloat16).view(2, 3), torch.full((1, 3), 0.1, requires_grad=True)]
    joined = concatenate(tensors)
    assert joined.dtype == torch.float32 and not joined.requires_grad
    assert torch.equal(joined, torch.cat(tensors).detach())
    assert torch.equal(concatenate([joined, joined], dim=1), torch.cat([joined, joined], 1))
    assert torch.equal(concatenate([joined]), joined)


def test_conversion_copies_only_what_differs():
    x = torch.randn(3, 5)
    assert convert(x, torch.float32) is x
    assert torch.equal(convert(x, torch.bfloat16), x.bfloat16())
    turned = convert(x.t(), torch.float32)
    assert turned.is_contiguous() and torch.equal(turned, x.t())


def test_whole_huge_pages_of_a_copy_are_advised(monkeypatch):
    calls = []
    library = SimpleNamespace(madvise=lambda first, length, advice: calls.append((first.value, length.value, advice)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(sys, "platform", "linux")
    large, small = empty((5 * HUGE_PAGE_BYTES // 2,), torch.uint8), empty((4,), torch.float32)
    ((first, length, advice),) = calls
    begin, end = large.data_ptr(), large.data_ptr() + large.nbytes
    assert begin <= first < begin + HUGE_PAGE_BYTES and end - HUGE_PAGE_BYTES < first + length <= end
    assert first % HUGE_PAGE_BYTES == length % HUGE_PAGE_BYTES == 0 and (advice, small.shape) == (14, (4,))
    assert HUGE_PAGE_BYTES == 2 * 1024**2, "of x86 and of ARM with small pages of 4 KiB"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert empty((5 * HUGE_PAGE_BYTES,), torch.uint8).nbytes and len(calls) == 1


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    sys.platform != "linux" or not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(),
    reason="the kernel has no huge pages",
)
def test_large_copies_ask_for_huge_pages():
    joined = concatenate([torch.ones(16 * HUGE_PAGE_BYTES // 4)] * 2)
    inside, advised = joined.data_ptr() + joined.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            begin, end = (int(address, 16) for address in first.split("-"))
            holds = begin <= inside < end
        elif first == "VmFlags:" and holds:
            advised = "hg" in rest.split()
    assert advised
