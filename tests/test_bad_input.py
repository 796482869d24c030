"""Wrong input of every kind, through the library and through `optimum-cli`: one error, its reason, the next command.

Every refusal of the command line ends with exit code 1 (or 2 for a mistyped line), without a traceback, and leaves no
exported folder. Interrupted writes, full disks and races are in `exporters/test_folder.py` and
`exporters/test_export.py`, the compile cache's own in `compiler/test_disk_limits.py`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.lower import choose
from optimum_neuron.compiler.neff import NeffDocument, open_neff, write_neff
from optimum_neuron.errors import (
    ArtifactError,
    ConfigError,
    CoreBusyError,
    DeviceMemoryError,
    FormatVersionError,
    ModelError,
    NeuronError,
    TargetMismatchError,
    UnsupportedDtypeError,
    WeightsError,
)
from optimum_neuron.exporters import main_export
from optimum_neuron.exporters.folder import file_hash
from optimum_neuron.runtime.hbm import ledger
from tests.tiny import NUM_BYTE_TOKENS, SHAPES, save_tiny, write_config

ROOT = Path(__file__).parents[1]
SMALL = {**SHAPES, "prefill_buckets": (16,), "extend_length": 1}
load = NeuronModelForCausalLM.from_pretrained


# Exports that are refused before anything is compiled.

Case = tuple[Callable[[Path, Path], dict[str, Any]], type[NeuronError], str]

CASES: dict[str, Case] = {
    "missing folder": (lambda c, t: {"model": t / "missing"}, ModelError, "no such folder"),
    "empty folder": (lambda c, t: {"model": folder(t / "empty")}, ModelError, "an empty folder"),
    "folder without config": (lambda c, t: {"model": c.parent}, ModelError, "no config.json in it"),
    "a file as model": (lambda c, t: {"model": c / "config.json"}, ModelError, "a file. A model is a folder"),
    "config is no JSON": (lambda c, t: {"model": text(t / "m", "{no")}, ModelError, "JSONDecodeError"),
    "config is a list": (lambda c, t: {"model": text(t / "m", "[]")}, ModelError, "a JSON list instead of an object"),
    "unknown architecture": (
        lambda c, t: {"model": write_config(t / "m", model_type="lama")},
        ModelError,
        "did you mean 'llama'?",
    ),
    "a class of no task": (
        lambda c, t: {"model": write_config(t / "m", model_type="bert", architectures=["BertForPreTraining"])},
        ModelError,
        "a bert model serves text-generation, fill-mask, ",
    ),
    "unknown task": (lambda c, t: {"task": "text-generatoin"}, ModelError, "did you mean 'text-generation'?"),
    "too many positions": (
        lambda c, t: {"sequence_length": 65, "decode_buckets": (65,)},
        ConfigError,
        "pass sequence_length=64 or less",
    ),
    "bucket beyond sequence": (lambda c, t: {"prefill_buckets": (16, 60)}, ConfigError, "end the buckets at 48"),
    "contradictory arithmetic": (
        lambda c, t: {"auto_cast": "all", "torch_dtype": "bfloat16"},
        ConfigError,
        "two settings for the same arithmetic",
    ),
    "fp8 on inf2": (
        lambda c, t: {"auto_cast": "all", "auto_cast_type": "fp8_e4m3", "instance_type": "inf2"},
        UnsupportedDtypeError,
        "targets that support it: trn2, trn3",
    ),
    "unknown instance": (lambda c, t: {"instance_type": "inf2.xlrge"}, ConfigError, "did you mean 'inf2.xlarge'?"),
    "inf1": (lambda c, t: {"instance_type": "inf1"}, ConfigError, "it cannot be compiled for"),
    "output is the checkpoint": (lambda c, t: {"output": c}, ConfigError, "the folder of the checkpoint itself"),
    "output is a file": (lambda c, t: {"output": c / "config.json"}, ConfigError, "a file of that name"),
    "tolerance without comparison": (
        lambda c, t: {"atol": 0.1, "disable_validation": True},
        ConfigError,
        "a tolerance is for the comparison that is switched off",
    ),
}


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def text(path: Path, content: str) -> Path:
    (folder(path) / "config.json").write_text(content)
    return path


def words_of(options: dict[str, Any]) -> list[str]:
    """Keywords of `main_export` as words of the command line."""
    words = []
    for name, value in options.items():
        if name == "optlevel":
            words.append(f"-O{value}")
        elif value is True:
            words.append("--" + name.replace("_", "-"))
        else:
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return words


@pytest.mark.parametrize("case", CASES)
def test_the_library_and_the_command_line_say_the_same(case, checkpoint, tmp_path, cli):
    make, error, message = CASES[case]
    options = {"model": checkpoint, "output": tmp_path / "out", **SHAPES, **make(checkpoint, tmp_path)}
    before = sorted(checkpoint.iterdir())
    model, output = options.pop("model"), options.pop("output")
    with pytest.raises(error) as refused:
        main_export(model, output, **options)
    assert message.lower() in str(refused.value).lower() and "To fix it: " in str(refused.value)
    ran = cli("export", "neuron", "-m", str(model), str(output), *words_of(options))
    assert (ran.code, ran.stdout) == (1, "")
    assert message.lower() in ran.stderr.lower()
    assert "Traceback" not in ran.stderr and ran.stderr.splitlines()[-1].startswith("next: ")
    assert not (tmp_path / "out").exists() and sorted(checkpoint.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch_size", "0"], "'0' is not a whole number above 0"),
        (["--batchsize", "2"], "unknown option '--batchsize', did you mean '--batch_size'?"),
        (["--torch_dtype", "float64"], "did you mean 'float16'?"),
        (["-O1", "-O2"], "not allowed with argument"),
        (["--atol", "-1"], "'-1' is not a number of at least 0"),
    ],
)
def test_a_mistyped_line_ends_with_2(checkpoint, tmp_path, cli, words, message):
    ran = cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "out"), *words)
    assert (ran.code, ran.stdout) == (2, "") and message in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("next: optimum-cli export neuron --help")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: not a whole number of at least 1"),
        ({"batch_size": 2.0}, "batch_size=2.0: not a whole number"),
        ({"batch_size": True}, "batch_size=True: not a whole number"),
        ({"sequence_length": -1}, "sequence_length=-1: not a whole number"),
        ({"prefill_buckets": ()}, "not a rising list of lengths"),
        ({"prefill_buckets": (16, 8)}, "not a rising list of lengths"),
        ({"prefill_buckets": "16"}, "not a rising list of lengths"),
        ({"batchsize": 2, "sequence_lenght": 4}, "'batchsize', did you mean 'batch_size'.*'sequence_lenght', did you"),
        ({"family": "lama"}, "family=lama: no such family, did you mean 'llama'"),
        ({"auto_cast_type": "bf61"}, "auto_cast_type='bf61': not one of bf16.*did you mean 'bf16'"),
        ({"optlevel": "4"}, "optlevel='4': not one of 1, 2, 3"),
    ],
)
def test_python_values_are_checked_where_the_command_line_has_types(checkpoint, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        main_export(checkpoint, tmp_path / "out", **{**SHAPES, **options})


def test_all_wrong_values_are_told_at_once(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match="(?s)batch_size=0.*extend_length=0.*torch_dtype='int4'"):
        main_export(checkpoint, tmp_path / "out", batch_size=0, extend_length=0, torch_dtype="int4")


def test_a_refusal_of_the_installed_command(tmp_path):
    """The one test that starts the program as a user does."""
    command = [
        str(Path(sys.executable).with_name("optimum-cli")),
        "export",
        "neuron",
        "-m",
        "./missing",
        "out",
        "--json",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    error = json.loads(ran.stdout)["error"]
    assert ran.returncode == 1 and error["type"] == "ModelError" and "Traceback" not in ran.stderr
    assert "'./missing': no such folder" in error["message"] and error["hint"].startswith("optimum-cli neuron fetch")
    assert list(tmp_path.iterdir()) == []


# Weights of a checkpoint.


def damaged(checkpoint: Path, to: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    copy = shutil.copytree(checkpoint, to)
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


UP = "model.layers.1.mlp.up_proj.weight"
DAMAGE: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "missing": (lambda t: t.pop(UP), f"{UP}"),
    "renamed": (lambda t: t.update({"model.layers.1.mlp.upp_proj.weight": t.pop(UP)}), UP),
    "reshaped": (lambda t: t.update({UP: t[UP].T.contiguous()}), r"\[32, 64\]"),
    "narrower": (lambda t: t.update({UP: t[UP][:, 1:].contiguous()}), r"\[64, 31\]"),
}


@pytest.mark.parametrize("family", ["llama", "generic"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_weights_that_do_not_fit_are_named(checkpoint, model, tmp_path, kind, family):
    """With validation off: transformers would fill what is missing with random numbers, and nobody would notice."""
    change, message = DAMAGE[kind]
    options = {**SMALL, "family": family, "disable_validation": True}
    with pytest.raises(WeightsError, match=message):
        load(damaged(checkpoint, tmp_path / "damaged", change), export=True, **options)


def test_all_problems_of_the_weights_are_told_at_once(checkpoint, tmp_path):
    def change(tensors):
        del tensors["model.norm.weight"], tensors["lm_head.weight"]

    with pytest.raises(WeightsError, match="lm_head.weight is missing; model.norm.weight is missing"):
        load(damaged(checkpoint, tmp_path / "damaged", change), export=True, **SHAPES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot mmap an empty file"),
        (b"1234", "4 bytes"),
        (b"\xff" * 64, "a header of"),
        (None, "outside the file"),
    ],
)
def test_a_safetensors_file_that_is_none(checkpoint, tmp_path, content, message):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:-100] if content is None else content)
    with pytest.raises(WeightsError, match=message):
        load(copy, export=True, **SHAPES)


def test_pickled_weights_are_not_read(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="only pytorch_model.bin, which is pickle"):
        load(copy, export=True, **SHAPES)


def test_an_index_cannot_lead_out_of_the_folder(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"weight_map": {"model.norm.weight": "../outside.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    (copy / "decoy.safetensors").touch()
    with pytest.raises(WeightsError, match="missing ../outside.safetensors"):
        load(copy, export=True, **SHAPES)


# Exported folders.


@pytest.fixture
def copy(exported, tmp_path) -> Path:
    """An exported folder that a test may damage."""
    return shutil.copytree(exported, tmp_path / "copy")


def seal(export: Path) -> None:
    """Make the hashes in the marker those of the files, as a forger would."""
    path = export / "neuron_config.json"
    data = json.loads(path.read_text())
    data["artifact"]["neff_sha256"] = file_hash(export / "model.neuron")
    data["artifact"]["weights"]["sha256"] = file_hash(export / "model.safetensors")
    path.write_text(json.dumps(data))


def rewrite(path: Path, change: Callable[[dict[str, bytes]], Any]) -> None:
    """Change members of a NEFF and write it with a right hash."""
    with open_neff(path) as neff:
        members, document = {name: bytes(neff.read(name)) for name in neff.names}, neff.document
    change(members)
    facts = {f: getattr(document, f) for f in ("name", "target", "core_version", "compiler_version", "metadata")}
    write_neff(path, members, **facts)


def refused(export: Path, error: type[NeuronError], message: str, cli=None, **options: Any) -> None:
    with pytest.raises(error, match=message):
        load(export, **options)
    if cli is not None:
        ran = cli("neuron", "inspect", str(export))
        assert (ran.code, ran.stdout) == (1, "")
        assert "Traceback" not in ran.stderr and ran.stderr.splitlines()[-1].startswith("next: ")


def test_an_artifact_of_another_generation(checkpoint, tmp_path, cli):
    words = [*words_of({**SMALL, "instance_type": "trn2"} | {"disable_validation": True})]
    words = [word for word in words if word not in ("--extend_length", "1")]
    assert cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "trn2"), *words).code == 0
    assert load(tmp_path / "trn2").describe()["target"]["value"] == "trn2"
    with pytest.raises(TargetMismatchError, match="compiled for trn2 .NeuronCore-v3.*--instance_type inf2") as error:
        load(tmp_path / "trn2", instance_type="inf2")
    assert error.value.details["compiled_for"] == "trn2"


def test_a_folder_of_a_newer_version(copy, cli):
    path = copy / "neuron_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    refused(copy, FormatVersionError, "folder version 2, this version reads 1.*upgrade", cli)


def test_a_neff_of_a_newer_format(copy, cli):
    data = bytearray((copy / "model.neuron").read_bytes())
    data[24:32] = (2).to_bytes(8, "little")  # the header's major version
    (copy / "model.neuron").write_bytes(data)
    seal(copy)
    refused(copy, FormatVersionError, "format version 2.0.*install a newer", cli)


def test_a_program_of_a_newer_ir(copy, cli):
    def newer(members):
        members["program.json"] = json.dumps({**json.loads(members["program.json"]), "ir_version": 99}).encode()

    rewrite(copy / "model.neuron", newer)
    seal(copy)
    refused(copy, FormatVersionError, "IR version 99, this version reads", cli)


@pytest.mark.parametrize("num_bytes", [0, 100, 1024, -1])
def test_a_truncated_neff(copy, num_bytes, cli):
    path = copy / "model.neuron"
    path.write_bytes(path.read_bytes()[:num_bytes])
    refused(copy, ArtifactError, "its sha256 differs", cli)
    seal(copy)
    refused(copy, ArtifactError, "too short|truncated", cli)


@pytest.mark.parametrize("at", [100, 1100, -600])
def test_a_flipped_byte_in_the_neff(copy, at, monkeypatch):
    path = copy / "model.neuron"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    refused(copy, ArtifactError, "its sha256 differs")
    monkeypatch.setenv("NEURON_RT_VALIDATE_HASH", "0")
    refused(copy, ArtifactError, "altered after it was written")


def test_a_flipped_byte_in_the_weights(copy, cli):
    path = copy / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    refused(copy, WeightsError, "their sha256 differs from the export's", cli)


def test_a_member_that_climbs_out_of_the_folder(copy, cli):
    """The tar has a right hash: only the name gives it away."""
    path, buffer = copy / "model.neuron", io.BytesIO()
    with open_neff(path) as neff:
        contents = {name: bytes(neff.read(name)) for name in neff.names}
        document: NeffDocument = neff.document
    contents |= {"neff.json": document.to_json(), "../../evil": b"payload"}
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    data = buffer.getvalue()
    path.write_bytes(document.header(data_size=len(data), digest=hashlib.sha256(data).digest()).pack() + data)
    seal(copy)
    refused(copy, ArtifactError, "'../../evil' climbs out of its folder", cli)
    assert not list(copy.parent.rglob("evil"))


def test_a_body_with_a_call_that_is_no_operator(copy):
    def call_the_shell(members):
        name = next(name for name in members if name.startswith("bodies/"))
        members[name] = members[name].replace(b"aten.", b"os.", 1)

    rewrite(copy / "model.neuron", call_the_shell)
    seal(copy)
    refused(copy, ArtifactError, "os\\.")


def test_a_neff_that_says_nothing_about_weights(copy):
    with open_neff(copy / "model.neuron") as neff:
        members, document = {name: bytes(neff.read(name)) for name in neff.names}, neff.document
    write_neff(
        copy / "model.neuron",
        members,
        name=document.name,
        target=document.target,
        core_version=document.core_version,
        compiler_version=document.compiler_version,
        metadata={},
    )
    seal(copy)
    refused(copy, ArtifactError, "its metadata has no family; its metadata has no stacks")


@pytest.mark.parametrize("kind", DAMAGE)
def test_weights_of_an_export_that_do_not_fit(copy, kind):
    change, message = DAMAGE[kind]
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    seal(copy)
    refused(copy, WeightsError, message)


# The simulated machine.


def test_a_model_larger_than_the_memory(checkpoint, tmp_path, cli):
    words = ["--batch_size", "1000000", "--sequence_length", "64", "--prefill_buckets", "1", "-O1"]
    ran = cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "out"), *words, "--json")
    error = ran.json["error"]
    assert ran.code == 1 and error["type"] == "DeviceMemoryError" and not (tmp_path / "out").exists()
    for part in ("kv_cache", "available     16.000 GiB", "divide batch_size or sequence_length by 3", "(simulated)"):
        assert part in error["message"]
    assert error["details"]["total"] > error["details"]["available"]


def test_several_models_that_fill_a_core(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1")
    first = load(exported)
    core = ledger(first.loaded.claim.instance, 1)
    hog = core.charge("weights", core.available_bytes - 1000, "hog")
    with pytest.raises(DeviceMemoryError, match="hog"):
        load(exported)
    hog.release()
    load(exported)


HOLDER = textwrap.dedent("""
    import sys
    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.cores import claim_cores

    claim = claim_cores(INSTANCES["inf2.xlarge"], model="another-model")
    print("held", flush=True)
    sys.stdin.read()
""")


def test_a_core_that_another_process_holds(exported, checkpoint, tmp_path, monkeypatch, cli):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CoreBusyError, match=f"(?s){holder.pid}.*another-model|another-model.*{holder.pid}"):
            load(exported)
        words = words_of({key: value for key, value in SMALL.items() if key != "extend_length"})
        ran = cli("export", "neuron", "-m", str(checkpoint), str(tmp_path / "out"), *words)
        assert ran.code == 1 and str(holder.pid) in ran.stderr and "Traceback" not in ran.stderr
        assert "next: NEURON_RT_VISIBLE_CORES=N optimum-cli export neuron" in ran.stderr
        assert not (tmp_path / "out").exists()
    finally:
        holder.communicate()
    load(exported)


@pytest.mark.parametrize(("variable", "value"), [("NEURON_RT_VISIBLE_CORES", "0-99"), ("NEURON_RT_NUM_CORES", "many")])
def test_variables_that_cannot_be_meant(exported, monkeypatch, variable, value, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable}={value}"):
        load(exported)


def test_without_a_c_compiler_o2_falls_back_to_aten_and_says_so(checkpoint, model):
    from torch._inductor import config

    choose.probe_compiler.cache_clear()
    try:
        with config.patch({"cpp.cxx": ("no-such-compiler",)}):
            told = load(checkpoint, export=True, **{**SHAPES, "optlevel": "2"})
    finally:
        choose.probe_compiler.cache_clear()
    ids = torch.randint(3, NUM_BYTE_TOKENS, (2, 9))
    assert torch.equal(told(ids).logits, model(ids).logits)
    assert told.describe()["host_code"] == {"value": "aten", "reason": "aten: no C++ compiler on this machine"}
    (rejected,) = {choice.rejected[0] for choice in told.prepared.host.choices.values()}
    assert rejected.candidate == "inductor" and "apt-get install g++" in rejected.reason


# Prompts.


def test_a_prompt_beyond_the_largest_bucket_and_the_sequence(exported, tmp_path):
    model = load(exported)
    for columns, message in ((49, "a sequence of 49 tokens: compiled for 48"), (60, "a sequence of 60 tokens")):
        with pytest.raises(NeuronError, match=message):
            model(torch.ones(1, columns, dtype=torch.long))


def test_weights_with_numbers_that_are_none_are_not_exported(tmp_path):
    checkpoint = save_tiny(tmp_path / "nan", "llama")
    spoilt = damaged(checkpoint, tmp_path / "spoilt", lambda t: t["model.norm.weight"].fill_(torch.nan))
    with pytest.raises(NeuronError, match="outputs are past the tolerance"):
        main_export(spoilt, tmp_path / "out", **SMALL)
    assert not (tmp_path / "out").exists()
