"""The notebooks: each runs from its first cell to its last in an empty folder, and is stored without outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tree import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST_BYTES = 20_000


def cells(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_notebooks_are_small_without_outputs_and_share_installation():
    read = [json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS]
    assert [path.stem for path in NOTEBOOKS] == ["export_and_pipeline", "fine_tuning", "quickstart"]
    assert {cells(notebook)[0] for notebook in read} == {cells(read[0])[0]}
    assert "optimum-neuron-sim" in cells(read[0])[0] and "/sdk" in cells(read[0])[0]
    assert [cell for notebook in read for cell in notebook["cells"] if cell.get("outputs")] == []
    assert [path.name for path in NOTEBOOKS if path.stat().st_size > LARGEST_BYTES] == []


def test_quickstart_names_them():
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"../notebooks/{path.name}" not in page] == []


@pytest.mark.full(days=7)
@pytest.mark.filterwarnings("default")  # warnings of Jupyter's packages are ignored
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if path.stem == "fine_tuning":
        pytest.importorskip("peft")
    # A separate instance: this process may hold cores of the default one.
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert all(cell["execution_count"] for cell in notebook.cells if cell.cell_type == "code")
