"""How much code an export goes through: files that run, and rooms of `exporters/` that are entered again.

Another model of the same architecture is exported first, so that a run has no imports and no tables that are made once.
The compile cache is empty in both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

import optimum_neuron
from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.exporters import main_export

PACKAGE = Path(optimum_neuron.__file__).parent
OPTIONS = {"batch_size": 1, "sequence_length": 64, "optlevel": "1"}
MAX_FILES = 120
"""Lower it, never raise it. Alone, the run takes 116; what other tests of its process have loaded adds three, and
compiled host code four on a CPU with products of bfloat16 numbers."""
MAX_STATIONS, MAX_RETURNS = 9, 11
"""Likewise."""


def save_llama(folder: Path, hidden_size: int) -> Path:
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=hidden_size, intermediate_size=128, num_attention_heads=4, vocab_size=256
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Iterator[Path]:
    """A Llama whose like was exported already, with other sizes."""
    folder = tmp_path_factory.mktemp("walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTIMUM_NEURON_HOME", str(folder / "first"))
        main_export(save_llama(folder / "warm", 64), folder / "out", **OPTIONS)
        NeuronModelForCausalLM.from_pretrained(folder / "warm", export=True, **OPTIONS)
        patch.setenv("OPTIMUM_NEURON_HOME", str(folder / "second"))
        yield save_llama(folder / "llama", 96)


def files_called(function: Callable[[], object]) -> list[Path]:
    """Files of this package, relative to it, in the order of the calls of their functions."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    relative = {name: Path(name).relative_to(PACKAGE) for name in {*called} if PACKAGE in Path(name).parents}
    return [relative[name] for name in called if name in relative]


def walk(files: list[Path]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the stations of a walk through `exporters/` and its returns.

    A station is a module or package inside `exporters/` whose functions run. A return is a move to a station that was
    left before; a move between the same two stations counts once, however many graphs and results it is made for.
    Functions of other packages are no stations: a callback from one continues the walk where it leads.
    """
    rooms = [file.parts[1].removesuffix(".py") for file in files if file.parts[0] == "exporters"]
    seen, returns = rooms[:1], dict[tuple[str, str], None]()
    for before, room in zip(rooms, rooms[1:], strict=False):
        if room not in seen:
            seen.append(room)
        elif room != before:
            returns[before, room] = None
    return seen, list(returns)


def test_walk_counts_stations_and_each_kind_of_return_once():
    files = [Path("exporters", name) for name in ("a.py", "b/c.py", "a.py", "b/d.py", "a.py", "e.py", "a.py")]
    stations, returns = walk([*files[:2], Path("kinds/base.py"), *files[2:]])
    assert stations == ["a", "b", "e"] and returns == [("b", "a"), ("a", "b"), ("e", "a")]


@pytest.mark.full(days=4)
def test_cold_export_runs_few_files(checkpoint):
    files = set(files_called(lambda: NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **OPTIONS)))
    assert 50 < len(files) <= MAX_FILES, sorted(map(str, files))


@pytest.mark.full(days=2)
def test_walk_of_an_export_returns_seldom(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    stations, returns = walk(files_called(lambda: main_export(checkpoint, tmp_path / "out", **OPTIONS)))
    assert 5 < len(stations) <= MAX_STATIONS, stations
    assert len(returns) <= MAX_RETURNS, returns
