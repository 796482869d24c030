import dataclasses
import io
import json
import pathlib

from optimum_neuron.cli import Out, to_json
from optimum_neuron.cli.output import cell
from optimum_neuron.errors import ConfigError, ModelError

ROWS = [{"graph": "prefill_128", "shape": "[1, 128]", "ms": 1.5}, {"graph": "decode", "shape": "[1, 1]", "ms": 0.25}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make(mode, stream=io.StringIO):
    return Out(mode, stdout=stream(), stderr=stream())


def render(out, data):
    out.table(data["rows"], ("graph", "shape", "ms", "note"), title="graphs")


def test_table_in_pipe_is_plain_aligned_text():
    out = make("human")
    out.result({"rows": ROWS}, human=render, brief="2")
    assert out.stdout.getvalue() == (
        "graphs\ngraph        shape       ms\nprefill_128  [1, 128]   1.5\ndecode       [1, 1]    0.25\n"
    )
    assert out.stderr.getvalue() == ""


def test_lines_in_pipe_are_never_wrapped(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    out = make("human")
    out.table([{"found": "x" * 300}], ("found",))
    assert "x" * 300 in out.stdout.getvalue()


def test_terminal_gets_colors_unless_no_color(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    rows = [{"verdict": "fail"}]
    out = make("human", Terminal)
    out.table(rows, ("verdict",))
    out.warning("careful")
    assert "\x1b[31mfail" in out.stdout.getvalue() and "\x1b[" in out.stderr.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = make("human", Terminal)
    out.table(rows, ("verdict",))
    out.warning("careful")
    assert "\x1b" not in out.stdout.getvalue() + out.stderr.getvalue()


def test_brackets_and_colons_are_not_markup():
    out = make("human")
    out.table([{"dtype": "float32[1, 128]", "icon": ":smile: [red]x[/red]"}], ("dtype", "icon"))
    assert "float32[1, 128]  :smile: [red]x[/red]" in out.stdout.getvalue()


def test_json_is_one_document():
    out = make("json")
    out.text("not shown")
    out.result({"rows": ROWS}, human=render, brief="2")
    out.table(ROWS, ("graph",))
    out.hint("not shown")
    assert json.loads(out.stdout.getvalue()) == {"rows": ROWS}
    assert out.stderr.getvalue() == ""


def test_quiet_prints_brief_value_only():
    out = make("quiet")
    out.text("not shown")
    out.result({"rows": ROWS}, human=render, brief="2")
    out.hint("not shown")
    assert (out.stdout.getvalue(), out.stderr.getvalue()) == ("2\n", "")


def test_messages_go_to_stderr_and_hints_to_their_own_line():
    out = make("human")
    out.hint("optimum-cli neuron demo")
    out.warning("slow")
    out.error(ConfigError("x is 0.", hint="Pass x=1.").to_dict(), next_command="try --help")
    assert out.stdout.getvalue() == ""
    expected = "next: optimum-cli neuron demo\nwarning: slow\nerror: x is 0.\n  Pass x=1.\nnext: try --help\n"
    assert out.stderr.getvalue() == expected


def test_warnings_and_errors_are_shown_in_quiet_mode():
    out = make("quiet")
    out.warning("slow")
    out.error(ModelError("no such folder").to_dict(), next_command="try fetch")
    assert out.stdout.getvalue() == ""
    assert "slow" in out.stderr.getvalue() and "no such folder" in out.stderr.getvalue()


def test_empty_columns_are_omitted():
    out = make("human")
    out.table([{"a": 1, "b": None}, {"a": 2}], ("a", "b"))
    assert "b" not in out.stdout.getvalue()


def test_json_accepts_dataclasses_paths_and_sets_but_no_infinity():
    @dataclasses.dataclass
    class Point:
        x: float

    text = to_json({"p": Point(1.0), "path": pathlib.Path("a/b"), "set": {2, 1}, "sqnr_db": float("inf"), "n": (1,)})
    assert json.loads(text) == {"p": {"x": 1.0}, "path": "a/b", "set": [1, 2], "sqnr_db": "inf", "n": [1]}


def test_cell_formats_nested_values():
    assert cell([{"name": "ids", "shape": [1, 8]}]) == "name=ids, shape=1, 8"
