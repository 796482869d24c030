"""Paths of host code: everything that changes the code changes the path."""

import sys

import pytest
import torch

from optimum_neuron.base import env
from optimum_neuron.compiler.lower import CpuFeatures
from optimum_neuron.compiler.lower.choose import name_level
from optimum_neuron.compiler.lower.lower import generator_hash, record_path

AVX2 = CpuFeatures(isa="AVX2", has_bf16_dot=False)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_path_is_stable_and_in_store(tmp_path):
    path = record_path("sub_0", "inductor", AVX2, tmp_path)
    assert path == record_path("sub_0", "inductor", AVX2, tmp_path)
    assert path.is_relative_to(tmp_path) and path.suffix == ".json" and path.name.startswith("sub_0-inductor-")
    assert torch.__version__.replace("+", "-") in path.parent.name and path.parent.name.endswith("-avx2")
    assert record_path("sub_0", "inductor", AVX2).is_relative_to(env.home() / "host")


def test_content_level_and_cpu_change_path(tmp_path):
    paths = {
        record_path(name, level, CpuFeatures(isa=isa, has_bf16_dot=dot), tmp_path)
        for name in ("sub_0", "sub_1")
        for level in ("inductor", "inductor-max")
        for isa in ("AVX2", "AVX512")
        for dot in (False, True)
    }
    assert len(paths) == 16


def test_cpus_share_code_only_if_both_can_run_it(tmp_path):
    base = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma3", "lzcnt"}
    wide = base | {"avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl"}
    assert name_level("AVX512", "x86_64", wide) == ("x86-64-v4", "")
    assert name_level("AVX512", "x86_64", wide - {"avx512_cd"}) == ("x86-64-v3", "")
    assert name_level("AVX2", "x86_64", wide) == ("x86-64-v3", ""), "as ATEN_CPU_CAPABILITY=avx2 makes it"
    assert name_level("AVX2", "x86_64", base - {"bmi2"}) == ("x86-64", "")
    assert name_level("DEFAULT", "x86_64", wide) == ("x86-64", "")
    one, two = (name_level("SVE256", "aarch64", {"sve", "bf16", extra}) for extra in ("i8mm", "sha3"))
    assert one[0] is None and one[1] != two[1]
    paths = {
        record_path("sub_0", "inductor", CpuFeatures(isa="AVX512", has_bf16_dot=True, march=m, extensions=e), tmp_path)
        for m in ("x86-64-v3", "x86-64-v4")
        for e in ((), ("vnni",), ("vnni", "amx"))
    }
    assert len(paths) == 6


def test_torch_and_thread_count_change_path(tmp_path, threads, monkeypatch):
    threads(1)
    one = record_path("sub_0", "inductor", AVX2, tmp_path)
    threads(2)
    two = record_path("sub_0", "inductor", AVX2, tmp_path)
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert len({one, two, record_path("sub_0", "inductor", AVX2, tmp_path)}) == 3


def test_code_generator_changes_path(tmp_path, monkeypatch):
    before = record_path("sub_0", "inductor", AVX2, tmp_path)
    for name in ("arithmetic.py", "host.h"):
        (tmp_path / name).write_text("another generator")
    module = sys.modules[record_path.__module__]
    monkeypatch.setattr(module, "__file__", str(tmp_path / "lower.py"))
    generator_hash.cache_clear()
    try:
        assert record_path("sub_0", "inductor", AVX2, tmp_path) != before
    finally:
        generator_hash.cache_clear()
