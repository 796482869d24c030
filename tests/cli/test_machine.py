import importlib.metadata
import os
import shutil
import sys

import pytest

from optimum_neuron.cli import machine


def find_in(folder):
    """Let importlib.metadata see one folder only, whatever is installed."""
    search = importlib.metadata.MetadataPathFinder.find_distributions

    def find_distributions(context=None):
        name = None if context is None else context.name
        return search(importlib.metadata.DistributionFinder.Context(name=name, path=[str(folder)]))

    return staticmethod(find_distributions)


@pytest.fixture(scope="module")
def facts():
    return machine.examine()


def test_installed_versions_match_metadata(facts):
    assert facts.packages["torch"] == importlib.metadata.version("torch")
    assert facts.packages["huggingface-hub"] == importlib.metadata.version("huggingface_hub")


def test_ranges_come_from_distribution_metadata(tmp_path, monkeypatch):
    info = tmp_path / "a_name_of_its_own-1.0.dist-info"
    info.mkdir()
    (info / "top_level.txt").write_text("optimum_neuron\n")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: a-name-of-its-own\nVersion: 1.0\nRequires-Python: >=3.11\n"
        "Requires-Dist: torch<2.14,>=2.13\n"
    )
    monkeypatch.setattr(importlib.metadata.MetadataPathFinder, "find_distributions", find_in(tmp_path))
    assert machine._own_metadata() == ("a-name-of-its-own", ">=3.11", ("torch<2.14,>=2.13",))


def test_source_folder_has_no_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata.MetadataPathFinder, "find_distributions", find_in(tmp_path))
    assert machine._own_metadata() == (None, "", ())


def test_working_torch_reports_lowering_probes(facts):
    from optimum_neuron.compiler.lower import probe_compiler, probe_cpu

    assert facts.torch_complaint == ""
    assert facts.host_code == probe_cpu()
    assert (facts.compiler.version if facts.compiler else None) == probe_compiler()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_working_compiler_has_no_problem(facts):
    assert facts.compiler.complaint == ""


def test_failing_compiler_reports_reason(tmp_path):
    from torch._inductor import config

    broken = tmp_path / "g++"
    broken.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'g++ 1.0';; *) echo 'g++: no headers' >&2; exit 1;; esac\n"
    )
    broken.chmod(0o755)
    with config.patch({"cpp.cxx": str(broken)}):
        assert machine._try_compiler() == "g++: no headers"
    with config.patch({"cpp.cxx": str(tmp_path / "absent")}):
        assert machine._try_compiler() == "Inductor looks for it under another name"
    broken.chmod(0o644)
    assert str(broken) in machine._output([str(broken)])


def test_import_error_of_torch_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    complaint, *rest = machine._host_code()
    assert "torch" in complaint and rest == [None, None]


def test_cpu_features_of_x86_and_arm(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu avx2\n")
    assert machine._cpu_features(cpuinfo) == {"fpu", "avx2"}
    cpuinfo.write_text("processor\t: 0\nFeatures\t: asimd bf16\n")
    assert machine._cpu_features(cpuinfo) == {"asimd", "bf16"}
    assert machine._cpu_features(tmp_path / "absent") is None


def test_memory_respects_limit_of_container(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemAvailable:  50 kB\n")
    assert machine._available_memory_bytes(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("20480\n")
    (tmp_path / "memory.current").write_text("10240\n")
    assert machine._available_memory_bytes(meminfo, tmp_path) == 10240
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._available_memory_bytes(meminfo, tmp_path) == 50 * 1024
    assert machine._available_memory_bytes(tmp_path / "absent", tmp_path) is None


def test_missing_folder_is_judged_by_parent_and_not_created(tmp_path):
    folder = machine._folder("own caches", str(tmp_path / "a" / "b"))
    assert folder.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert folder.complaint == "" and list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_reported_and_url_is_skipped():
    assert machine._folder("own caches", "/proc/self").complaint
    assert machine._folder("compile cache", "s3://bucket/neffs").free_bytes is None


def test_only_set_variables_are_listed(monkeypatch):
    home = os.environ["OPTIMUM_NEURON_HOME"]
    assert machine._settings() == ({"OPTIMUM_NEURON_HOME": home}, ())
    monkeypatch.delenv("OPTIMUM_NEURON_HOME")
    assert machine._settings() == ({}, ())
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-1")
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "two")
    settings, complaints = machine._settings()
    assert settings == {"NEURON_RT_NUM_CORES": "two", "NEURON_RT_VISIBLE_CORES": "0-1"}
    assert len(complaints) == 1 and "NEURON_RT_NUM_CORES=two" in complaints[0]


WRONG = {
    "NEURON_CC_FLAGS": "--no-such-flag",
    "NEURON_RT_LOG_LEVEL": "LOUD",
    "NEURON_LOGICAL_NC_CONFIG": "two",
    "OPTIMUM_NEURON_NUMERICS": "exact",
}


@pytest.mark.parametrize(("name", "value"), WRONG.items(), ids=WRONG)
def test_invalid_value_is_reported(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert [name in complaint for complaint in machine._settings()[1]] == [True]


def test_setting_without_effect_is_detected(monkeypatch):
    monkeypatch.setenv("NEURON_FUSE_SOFTMAX", "1")
    assert list(machine.examine().unused_settings) == ["NEURON_FUSE_SOFTMAX"]
