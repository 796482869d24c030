import dataclasses

import pytest

from optimum_neuron.cli.diagnosis import Finding, judge, overall
from optimum_neuron.cli.machine import CppCompiler, Folder, Machine
from optimum_neuron.compiler.lower import CpuFeatures

GOOD = Machine(
    python="3.11.7",
    distribution="optimum-neuron-sim",
    requires_python=">=3.11",
    requirements=(
        "torch<2.14,>=2.13",
        "transformers<6,>=5.22",
        "tomli>=1; python_version < '3.8'",
        "s3fs>=2024.6; extra == 's3'",
        "optimum-neuron-sim[s3]; extra == 'test'",
    ),
    packages={"torch": "2.13.0+cpu", "transformers": "5.23.0", "optimum-neuron-sim": "0.1.0"},
    torch_complaint="",
    compiler=CppCompiler(version="g++ 12.2.0"),
    host_code=CpuFeatures(isa="AVX512", has_bf16_dot=True),
    cpu="x86_64",
    cpu_features=frozenset({"fpu", "avx2", "avx512f", "avx512_bf16"}),
    num_cpus=8,
    memory_available_bytes=16 * 2**30,
    folders=(
        Folder(purpose="compile cache", location="/cache/neff", free_bytes=100 * 2**30),
        Folder(purpose="own caches", location="/cache", free_bytes=100 * 2**30),
    ),
    settings={},
    setting_complaints=(),
    unused_settings={},
)


def findings_of(**changes):
    return {finding.check: finding for finding in judge(dataclasses.replace(GOOD, **changes))}


def not_ok(**changes):
    return {check: finding for check, finding in findings_of(**changes).items() if finding.verdict != "ok"}


def test_healthy_machine_is_ok():
    findings = judge(GOOD)
    assert overall(findings) == "ok"
    assert [finding.check for finding in findings] == [
        "python", "torch", "transformers", "AWS Neuron SDK", "C++ compiler", "CPU", "memory", "compile cache",
        "own caches", "environment",
    ]  # fmt: skip
    assert not [finding for finding in findings if finding.remedy]


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "consequence", "remedy"),
    [
        ({"python": "3.10.2"}, "python", "fail", "needed is >=3.11", "Python >=3.11"),
        ({"packages": {"torch": "2.12.1", "transformers": "5.23.0"}}, "torch", "fail", "needed is <2.14,>=2.13",
         "pip install 'torch<2.14,>=2.13'"),
        ({"packages": {"torch": "2.14.0", "transformers": "5.23.0"}}, "torch", "fail", "not supported", "'torch<2.14"),
        ({"packages": {"torch": "2.13.0"}}, "transformers", "fail", "needed is <6,>=5.22", "'transformers<6,>=5.22'"),
        ({"packages": {**GOOD.packages, "s3fs": "2023.1"}}, "s3fs", "warn", "not supported", "'s3fs>=2024.6'"),
        ({"packages": {**GOOD.packages, "torch-neuronx": "2.9", "optimum-neuron-sim-sdk": "0.1.0"}}, "AWS Neuron SDK",
         "fail", "same import names", "pip uninstall"),
        ({"compiler": None}, "C++ compiler", "warn", "every level runs as -O1", "apt install g++"),
        ({"compiler": CppCompiler(version="g++ 12", complaint="omp.h: no such file")}, "C++ compiler", "warn",
         "only -O1", "CXX"),
        ({"torch_complaint": "ImportError: libc10.so", "compiler": None, "host_code": None}, "import torch", "fail",
         "nothing can be compiled", "pip install --force-reinstall 'torch<2.14,>=2.13'"),
        ({"host_code": CpuFeatures(isa="DEFAULT", has_bf16_dot=False)}, "CPU", "warn", "slow", "AVX2"),
        ({"memory_available_bytes": 2**30}, "memory", "warn", "137", "smaller model"),
        ({"setting_complaints": ("NEURON_RT_NUM_CORES=x: not a whole number.",)}, "environment", "fail", "stops",
         "unset"),
    ],
)  # fmt: skip
def test_each_problem_is_one_finding_with_remedy(changes, check, verdict, consequence, remedy):
    result = not_ok(**changes)
    assert list(result) == [check]
    assert result[check].verdict == verdict
    assert consequence in result[check].consequence
    assert remedy in result[check].remedy


@pytest.mark.parametrize(
    ("folder", "verdict", "consequence"),
    [
        (Folder(purpose="compile cache", location="/c", free_bytes=10 * 2**20), "fail", "the disk is full"),
        (Folder(purpose="compile cache", location="/c", free_bytes=2**30), "warn", "fill the disk"),
        (Folder(purpose="compile cache", location="/c", free_bytes=2**40, complaint="Read-only file system"), "warn",
         "can be read"),
        (Folder(purpose="own caches", location="/c", free_bytes=2**40, complaint="Read-only file system"), "fail",
         "nothing can be written"),
        (Folder(purpose="compile cache", location="s3://b/neffs", free_bytes=None), "ok", "remote"),
    ],
)  # fmt: skip
def test_cache_folders(folder, verdict, consequence):
    finding = findings_of(folders=(folder,))[folder.purpose]
    assert finding.verdict == verdict
    assert consequence in finding.consequence
    variable = "NEURON_COMPILE_CACHE_URL" if folder.purpose == "compile cache" else "OPTIMUM_NEURON_HOME"
    assert (variable in finding.remedy) == (verdict != "ok")


def test_no_bf16_units_is_reported_and_is_not_fault():
    host_code = CpuFeatures(isa="AVX2", has_bf16_dot=False)
    finding = findings_of(host_code=host_code, cpu_features=frozenset({"avx2"}))["CPU"]
    assert finding.verdict == "ok"
    assert "upcast to fp32" in finding.consequence and "avx512" not in finding.found


def test_source_folder_has_no_ranges_but_missing_packages_still_fail():
    result = not_ok(distribution=None, requires_python="", requirements=(), packages={"torch": "2.13.0"})
    assert result.pop("installation").verdict == "warn"
    assert "torch" not in result and result["transformers"].verdict == "fail"


@pytest.mark.parametrize(
    ("changes", "check", "expected"),
    [
        ({"packages": {**GOOD.packages, "torch-neuronx": "2.9"}}, "AWS Neuron SDK", "torch-neuronx 2.9"),
        ({"memory_available_bytes": None}, "memory", "unknown"),
        ({"settings": {"NEURON_RT_NUM_CORES": "2"}}, "environment", "NEURON_RT_NUM_CORES=2"),
        (
            {"host_code": CpuFeatures(isa="DEFAULT", has_bf16_dot=False), "cpu": "arm64", "cpu_features": None},
            "CPU",
            "8 x arm64, DEFAULT",
        ),
    ],
)
def test_unusual_settings_are_shown_but_not_faults(changes, check, expected):
    finding = findings_of(**changes)[check]
    assert (finding.verdict, finding.found) == ("ok", expected)


def test_setting_without_effect_is_warning_with_its_reason():
    finding = not_ok(unused_settings={"NEURON_FUSE_SOFTMAX": "fusions are found"})["NEURON_FUSE_SOFTMAX"]
    assert finding.verdict == "warn" and "fusions are found" in finding.consequence and finding.remedy


@pytest.mark.parametrize(
    ("verdicts", "worst"), [((), "ok"), (("ok", "warn"), "warn"), (("warn", "fail", "ok"), "fail")]
)
def test_overall_is_worst(verdicts, worst):
    findings = [Finding(check="c", verdict=verdict, found="", consequence="") for verdict in verdicts]
    assert overall(findings) == worst
