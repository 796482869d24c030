"""Where host code is kept: everything that changes the code changes the path."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron import env
from optimum_neuron.compiler.lower import store
from optimum_neuron.compiler.lower.choose import CpuFeatures
from optimum_neuron.compiler.lower.store import package_path

AVX2 = CpuFeatures(isa="AVX2", has_bf16_dot=False)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_path_is_in_the_store_and_stays_the_same(tmp_path):
    path = package_path("sub_0", "inductor", AVX2, tmp_path)
    assert path == package_path("sub_0", "inductor", AVX2, tmp_path)
    assert path.is_relative_to(tmp_path) and path.suffix == ".pt2" and path.name.startswith("sub_0-inductor-")
    assert torch.__version__.replace("+", "-") in path.parent.name and path.parent.name.endswith("-avx2")
    assert package_path("sub_0", "inductor", AVX2).is_relative_to(env.home() / "host")


def test_content_level_and_cpu_change_it(tmp_path):
    paths = {
        package_path(name, level, CpuFeatures(isa=isa, has_bf16_dot=dot), tmp_path)
        for name in ("sub_0", "sub_1")
        for level in ("inductor", "inductor-max")
        for isa in ("AVX2", "AVX512")
        for dot in (False, True)
    }
    assert len(paths) == 16


def test_torch_and_its_threads_change_it(tmp_path, threads, monkeypatch):
    threads(1)
    one = package_path("sub_0", "inductor", AVX2, tmp_path)
    threads(2)
    two = package_path("sub_0", "inductor", AVX2, tmp_path)
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert len({one, two, package_path("sub_0", "inductor", AVX2, tmp_path)}) == 3


def test_the_code_that_writes_host_code_changes_it(tmp_path, monkeypatch):
    before = package_path("sub_0", "inductor", AVX2, tmp_path)
    for name in ("arithmetic.py", "inductor.py"):
        (tmp_path / name).write_text("another generator")
    monkeypatch.setattr(store, "__file__", str(tmp_path / "store.py"))
    store._generator_hash.cache_clear()
    try:
        assert package_path("sub_0", "inductor", AVX2, tmp_path) != before
    finally:
        store._generator_hash.cache_clear()
