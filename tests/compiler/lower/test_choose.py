"""Choice of host code for a body, with its reason; probing is separate from deciding."""

import pytest
import torch
import torch._inductor.config
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures, compiler_knows_cpu, probe_compiler, probe_cpu
from optimum_neuron.compiler.lower.choose import LIBRARY_ROWS, choose_level
from tests.programs import spec, subprogram_of

COMPILER = "g++ 13"


def body(kind, rows):
    """A subprogram of that many rows, queries, or elements."""
    arguments = {
        "linear": (F.linear, spec(rows, 8), spec(4, 8)),
        "attention": (F.scaled_dot_product_attention, *[spec(1, 2, rows, 8)] * 3),
        "two products": (lambda x, w: F.linear(F.linear(x, w), w), spec(rows, 8), spec(8, 8)),
        "bias and product": (torch.addmm, spec(4), spec(rows, 8), spec(8, 4)),
        "no product": (torch.exp, spec(rows)),
    }
    return subprogram_of(*arguments[kind])


def test_o1_compiles_nothing():
    for subprogram in (body("linear", 1), body("attention", 64), body("no product", 4)):
        choice = choose_level(subprogram, optlevel="1", compiler=COMPILER)
        assert (choice.value, choice.reason) == ("aten", "-O1: no C++ compiler needed, ready at once")


@pytest.mark.parametrize(("optlevel", "expected"), [("2", "inductor"), ("3", "inductor-max")])
def test_missing_compiler_error_says_what_to_install(optlevel, expected):
    choice = choose_level(body("linear", 1), optlevel=optlevel, compiler=None)
    assert (choice.value, choice.reason) == ("aten", "no C++ compiler on this machine")
    (lost,) = choice.rejected
    assert lost.candidate == expected and "apt-get install g++" in lost.reason


@pytest.mark.parametrize(("optlevel", "expected"), [("2", "inductor"), ("3", "inductor-max")])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [("linear", 1), ("linear", LIBRARY_ROWS - 1), ("attention", 64), ("two products", 64), ("bias and product", 1)],
)
def test_subgraph_that_gains_is_compiled(kind, rows, optlevel, expected):
    choice = choose_level(body(kind, rows), optlevel=optlevel, compiler=COMPILER)
    assert (
        choice.value == expected and choice.reason == f"-O{optlevel}: fused kernels by g++ 13" and not choice.rejected
    )


@pytest.mark.parametrize(
    ("kind", "rows", "reason"),
    [
        ("linear", LIBRARY_ROWS, "one matrix product of 32 rows"),
        ("linear", 64, "one matrix product of 64 rows"),
        ("bias and product", 64, "one matrix product of 64 rows"),
        ("no product", 4, "no matrix product in it"),
    ],
)
def test_subgraph_that_gains_nothing_is_not_compiled(kind, rows, reason):
    subprogram = body(kind, rows)
    for optlevel in ("2", "3"):
        choice = choose_level(subprogram, optlevel=optlevel, compiler=COMPILER)
        assert choice.value == "aten" and choice.reason.startswith(reason)
        assert choice.rejected[0].reason == "would spend compile time for no speed"


def test_single_token_subgraph_is_compiled_for_dispatch():
    for subprogram in (body("no product", 4), body("linear", 64)):
        assert choose_level(subprogram, optlevel="2", compiler=COMPILER, per_token=True).value == "inductor"
        assert choose_level(subprogram, optlevel="2", compiler=COMPILER, per_token=True, rare=True).value == "aten"


def test_rarely_called_subgraph_is_compiled_at_o3():
    rare = choose_level(body("linear", 1), optlevel="2", compiler=COMPILER, rare=True)
    assert rare.value == "aten" and rare.reason == "only assisted generation and continued prompts call it"
    assert rare.rejected[0].candidate == "inductor"
    assert choose_level(body("linear", 1), optlevel="3", compiler=COMPILER, rare=True).value == "inductor-max"


def test_features_are_spelled_for_file_names():
    assert str(CpuFeatures(isa="AVX512", has_bf16_dot=True)) == "avx512-bf16"
    assert str(CpuFeatures(isa="DEFAULT", has_bf16_dot=False)) == "default"
    assert probe_cpu().isa == torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize(
    ("script", "expected"),
    [("echo 'my++ 9.1'; echo copyright", "my++ 9.1"), ("exit 1", None), ("exit 0", None), (None, None)],
    ids=["works", "fails", "says nothing", "is not there"],
)
def test_only_working_compiler_counts(script, expected, tmp_path):
    compiler = tmp_path / "my++"
    if script is not None:
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o755)
    with torch._inductor.config.patch({"cpp.cxx": (str(compiler),)}):
        assert probe_compiler.__wrapped__() == expected


@pytest.mark.parametrize("knows", [True, False])
def test_compiler_is_queried_for_cpu_flags(tmp_path, monkeypatch, knows):
    compiler = tmp_path / "c++"
    answers = f"case $* in --version) exec g++ --version;; esac\necho $* > {tmp_path}/asked\nexit {0 if knows else 1}\n"
    compiler.write_text(f"#!/bin/sh\n{answers}")
    compiler.chmod(0o755)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with torch._inductor.config.patch({"cpp.cxx": (str(compiler),)}):
        assert compiler_knows_cpu.__wrapped__() is knows
    assert "-mavx512f" in (tmp_path / "asked").read_text()


def test_probes_are_skipped_on_other_cpus(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert compiler_knows_cpu.__wrapped__() is False
