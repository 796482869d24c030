"""Wrong input of every kind, through the library and through `optimum-cli`: one error, its reason, the next command.

Every refusal of the command line ends with exit code 1 (or 2 for a mistyped line), without a traceback, and leaves no
exported folder. Files that were damaged are in `test_bad_files.py`. Interrupted writes, full disks and races are in
`exporters/test_folder.py` and `exporters/test_export.py`, the compile cache's own in `compiler/test_disk_limits.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.lower import choose
from optimum_neuron.errors import (
    ConfigError,
    CoreBusyError,
    DeviceMemoryError,
    ModelError,
    NeuronError,
    UnsupportedDtypeError,
)
from optimum_neuron.exporters import main_export
from optimum_neuron.runtime import ledger
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, SMALL, words_of, write_config

ROOT = Path(__file__).parents[1]
load = NeuronModelForCausalLM.from_pretrained


# Exports that are refused before anything is compiled.

Options = dict[str, Any] | Callable[[Path, Path], dict[str, Any]]
"""Or a function that makes them from the checkpoint and the folder of the test."""

CASES: dict[str, tuple[Options, type[NeuronError], dict[str, Any]]] = {
    "missing folder": (lambda c, t: {"model": t / "missing"}, ModelError, {"reason": "missing"}),
    "unknown architecture": (
        lambda c, t: {"model": write_config(t / "m", model_type="lama")},
        ModelError,
        {"model_type": "lama"},
    ),
    "a class of no task": (
        lambda c, t: {"model": write_config(t / "m", model_type="bert", architectures=["BertForPreTraining"])},
        ModelError,
        {"task": None, "model_type": "bert"},
    ),
    "unknown task": ({"task": "text-generatoin"}, ModelError, {"task": "text-generatoin"}),
    "too many positions": (
        {"sequence_length": 65, "decode_buckets": (65,)},
        ConfigError,
        {"option": "sequence_length", "value": 65, "limit": 64},
    ),
    "fp8 on inf2": (
        {"auto_cast": "all", "auto_cast_type": "fp8_e4m3", "instance_type": "inf2"},
        UnsupportedDtypeError,
        {"target": "inf2", "targets": ["trn2", "trn3"]},
    ),
    "unknown instance": ({"instance_type": "inf2.xlrge"}, ConfigError, {"name": "inf2.xlrge"}),
    "inf1": ({"instance_type": "inf1"}, ConfigError, {"target": "inf1"}),
    "output is the checkpoint": (lambda c, t: {"output": c}, ConfigError, {"reason": "checkpoint"}),
    "output is a file": (lambda c, t: {"output": c / "config.json"}, ConfigError, {"reason": "file"}),
    "tolerance without comparison": (
        {"atol": 0.1, "disable_validation": True},
        ConfigError,
        {"option": "atol", "value": 0.1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_library_and_command_line_report_the_same_error(case, checkpoint, tmp_path, cli):
    wrong, error, details = CASES[case]
    wrong = wrong(checkpoint, tmp_path) if callable(wrong) else wrong
    options = {"model": checkpoint, "output": tmp_path / "out", **SHAPES, **wrong}
    before = sorted(checkpoint.iterdir())
    model, output = options.pop("model"), options.pop("output")
    with raises(error, **details) as excinfo:
        main_export(model, output, **options)
    result = cli("export", "neuron", "-m", str(model), str(output), *words_of(options))
    assert (result.code, result.stdout) == (1, "")
    assert excinfo.value.message in result.stderr
    assert "Traceback" not in result.stderr and result.stderr.splitlines()[-1].startswith("next: ")
    assert not (tmp_path / "out").exists() and sorted(checkpoint.iterdir()) == before


def test_python_values_are_type_checked(checkpoint, tmp_path):
    with raises(ConfigError, options=["batchsize", "sequence_lenght"]):
        main_export(checkpoint, tmp_path / "out", batchsize=2, sequence_lenght=4)
    with raises(ConfigError, option="family", value="lama"):
        main_export(checkpoint, tmp_path / "out", family="lama", **SHAPES)


@pytest.mark.full(days=2)
def test_refusal_of_installed_command(tmp_path):
    """The one test that starts the program as a user does."""
    program = str(Path(sys.executable).with_name("optimum-cli"))
    command = [program, "export", "neuron", "-m", "./missing", "out", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    error = json.loads(result.stdout)["error"]
    assert result.returncode == 1 and error["type"] == "ModelError" and "Traceback" not in result.stderr
    assert "'./missing' does not exist" in error["message"]
    assert error["next_command"].startswith("optimum-cli neuron fetch")
    assert list(tmp_path.iterdir()) == []


# The simulated machine.


def test_model_larger_than_memory(checkpoint, tmp_path, cli, monkeypatch):
    monkeypatch.setattr("optimum_neuron.exporters.build.write_program", None)  # no NEFF is made, in the cache neither
    words = ["--batch_size", "1000000", "--sequence_length", "64", "--prefill_buckets", "1", "-O1"]
    result = cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "out"), *words, "--json")
    error = result.json["error"]
    assert result.code == 1 and error["type"] == "DeviceMemoryError" and not (tmp_path / "out").exists()
    for part in ("kv_cache", "available     16.000 GiB", "(simulated)"):
        assert part in error["message"]
    assert "Divide batch_size or sequence_length by 3" in error["hint"]
    assert error["details"]["total"] > error["details"]["available"]


def test_several_models_fill_a_core(export_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1")
    first = load(export_folder)
    core = ledger(first.loaded.claim.instance, 1)
    hog = core.charge("weights", core.available_bytes - 1000, "hog")
    with raises(DeviceMemoryError, core_id=1):
        load(export_folder)
    hog.release()
    load(export_folder)


HOLDER = textwrap.dedent("""
    import sys
    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.cores import claim_cores

    claim = claim_cores(INSTANCES["inf2.xlarge"], model="another-model")
    print("held", flush=True)
    sys.stdin.read()
""")


def test_busy_core(export_folder, checkpoint, tmp_path, monkeypatch, cli):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes)
    try:
        assert holder.stdout.readline() == "held\n"
        with raises(CoreBusyError) as error:
            load(export_folder)
        (row,) = error.value.details["holders"]
        assert (row["pid"], row["model"]) == (holder.pid, "another-model")
        with monkeypatch.context() as both, pytest.raises(CoreBusyError) as caught:
            both.delenv("NEURON_RT_VISIBLE_CORES")
            load(checkpoint, export=True, tensor_parallel_size=2, **SMALL)
        assert caught.value.details["num_cores"] == 2, "one of the two is free"
        words = words_of({**SMALL, "extend_length": None})
        result = cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "out"), *words)
        assert result.code == 0, "an export needs no core"
        result = cli("neuron", "profile", str(export_folder))
        assert result.code == 1 and str(holder.pid) in result.stderr and "Traceback" not in result.stderr
        assert "next: NEURON_RT_VISIBLE_CORES=1 optimum-cli neuron profile" in result.stderr
    finally:
        holder.communicate()
    load(export_folder)


@pytest.mark.parametrize(
    ("variable", "value", "details"),
    [
        ("NEURON_RT_VISIBLE_CORES", "0-99", {"unknown": list(range(2, 100)), "num_cores": 2}),
        ("NEURON_RT_NUM_CORES", "many", {"variable": "NEURON_RT_NUM_CORES", "value": "many"}),
    ],
)
def test_invalid_variables(export_folder, monkeypatch, variable, value, details, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    monkeypatch.setenv(variable, value)
    with raises(ConfigError, **details):
        load(export_folder)


def test_o2_without_c_compiler_falls_back_to_aten_with_a_warning(checkpoint, model):
    from torch._inductor import config

    choose.probe_compiler.cache_clear()
    try:
        with config.patch({"cpp.cxx": ("no-such-compiler",)}):
            report = load(checkpoint, export=True, **{**SHAPES, "optlevel": "2"})
    finally:
        choose.probe_compiler.cache_clear()
    ids = torch.randint(3, NUM_BYTE_TOKENS, (2, 9))
    assert torch.equal(report(ids).logits, model(ids).logits)
    assert report.describe()["host_code"] == {"value": "aten", "reason": "aten: no C++ compiler on this machine"}
    (rejected,) = {choice.rejected[0] for choice in report.prepared.host.choices.values()}
    assert rejected.candidate == "inductor" and "apt-get install g++" in rejected.reason


# Prompts.


def test_prompt_beyond_largest_bucket_and_sequence(export_folder, tmp_path):
    model = load(export_folder)
    for columns in (49, 60):
        with pytest.raises(NeuronError) as error:
            model(torch.ones(1, columns, dtype=torch.long))
        assert error.value.details == {"length": columns, "sequence_length": 48}
