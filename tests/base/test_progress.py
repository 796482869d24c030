"""Progress: one line for each finished step in a log, one updated line on a terminal, nothing if switched off."""

from __future__ import annotations

import io
import re
import types

import pytest

from optimum_neuron.base.progress import Step, hidden_bars


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    with Step("Compiling tiny") as step:
        for name in ("prefill", "decode"):
            step.show(f"captured {name}")
        step.note("2 graphs")
    return stream.getvalue()


def test_log_has_one_line_for_each_finished_step(monkeypatch):
    written = run(monkeypatch, io.StringIO())
    assert re.fullmatch(r"Compiling tiny: 2 graphs, [0-9.]+ [mu]?s\n", written), written


def test_terminal_updates_the_line_of_the_step(monkeypatch):
    written = run(monkeypatch, Terminal())
    assert "captured" in written and written.count("\n") == 1
    assert written.rpartition("\r")[2].startswith("Compiling tiny: 2 graphs, ")


def test_failed_step_leaves_no_line(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with pytest.raises(ValueError, match="no"), Step("Compiling tiny"):
        raise ValueError("no")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_switch_of_the_hub_turns_progress_off(monkeypatch, stream):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    assert run(monkeypatch, stream) == ""


def test_export_has_a_line_for_each_step(checkpoint, tmp_path, capfd):
    from optimum_neuron.exporters import main_export

    main_export(checkpoint, tmp_path / "out", sequence_length=32, optlevel="1", cache_url=str(tmp_path / "cache"))
    lines = [line for line in capfd.readouterr().err.splitlines() if line]
    assert [line.partition(":")[0] for line in lines] == [
        f"Compiling {checkpoint} for inf2",
        f"Comparing {checkpoint} with the reference model",
    ]


@pytest.mark.parametrize("shown", [True, False])
def test_bars_of_libraries_are_hidden_until_the_last_context_ends(shown):
    messages = types.ModuleType(f"library_{shown}.logging")
    state = {"shown": shown}
    messages.is_progress_bar_enabled = lambda: state["shown"]
    messages.disable_progress_bar = lambda: state.update(shown=False)
    messages.enable_progress_bar = lambda: state.update(shown=True)
    first, second = hidden_bars(messages), hidden_bars(messages)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not state["shown"]
    second.__exit__(None, None, None)
    assert state["shown"] is shown
