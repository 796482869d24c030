"""--logfile and --temp-dir: where the log and the files of a compile go."""

import tempfile

import pytest
import torch

from optimum_neuron.errors import ConfigError, UnsupportedOperatorError
from optimum_neuron.tracing import trace


def test_log_has_target_and_operators(tmp_path):
    path = tmp_path / "compile.txt"
    trace(torch.nn.Linear(3, 2), torch.rand(4, 3), compiler_args=f"-O1 --target inf2 --logfile {path}")
    text = path.read_text()
    assert "for inf2" in text and "aten.linear.default" in text and "graph graph:" in text


def test_log_of_failed_compile_has_the_error(tmp_path):
    path = tmp_path / "compile.txt"
    with pytest.raises(UnsupportedOperatorError):
        trace(lambda x: torch.sort(x)[0], torch.rand(4, 3), compiler_args=["-O1", f"--logfile={path}"])
    assert "UnsupportedOperatorError: " in path.read_text() and "NCC_EVRF001" in path.read_text()


def test_working_files_go_to_temporary_folder(tmp_path, monkeypatch):
    folders, make = [], tempfile.TemporaryDirectory

    def recorded(*args, **options):
        folders.append(str(options.get("dir")))
        return make(*args, **options)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", recorded)
    folder = tmp_path / "work"
    trace(torch.nn.Linear(3, 2), torch.rand(4, 3), compiler_args=f"-O1 --temp-dir={folder}")
    assert folders and all(name.startswith(str(folder)) for name in folders)
    assert folder.is_dir() and not list(folder.iterdir())


def test_error_of_the_temporary_folder_of_the_machine_is_that_of_python(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):
        trace(torch.nn.ReLU(), torch.rand(4), compiler_args="-O1")


@pytest.mark.parametrize("flag", ["--logfile", "--temp-dir"])
def test_unwritable_path_is_refused(tmp_path, flag):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "inside")
    with pytest.raises(ConfigError) as excinfo:
        trace(torch.nn.ReLU(), torch.rand(4), compiler_args=["-O1", flag, path])
    assert excinfo.value.details == {"flag": flag, "path": path}
