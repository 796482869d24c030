"""The page: whole in itself, escaped, with the numbers of the profile; a browser draws it where there is one."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess

import pytest

from optimum_neuron.base import wording
from optimum_neuron.profiling import drawing, page, report, short_line
from tests.markup import Checked


def parsed(text):
    checked = Checked()
    checked.feed(text)
    assert checked.open == []
    return checked


def drawn(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S).group(1))


def test_report_loads_no_external_files(profile):
    text = page(profile)
    checked = parsed(text)
    assert not {"link", "img", "iframe"} & {tag for tag, _ in checked.found}
    assert not any({"src", "href"} & attributes.keys() for _, attributes in checked.found)
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in text and "url(" not in text


def test_report_has_profile_numbers(profile):
    text = page(profile)
    output = " ".join(parsed(text).text)
    data = drawn(text)
    assert "simulated" in output and "80 % interval" in output and profile.machines[0].instance in output
    assert all(line in output for line in (*profile.assumptions, *profile.notes))
    assert sum(end - begin for _, _, begin, end, _, _ in data["segments"]) == pytest.approx(profile.device_us, abs=0.01)
    decode = next(one for one in data["inside"] if one["graph"] == "decode_48")
    graph = next(graph for graph in profile.graphs if graph.graph == "decode_48")
    assert sum(one[4] for one in decode["operators"]) + graph.launch_us == pytest.approx(graph.device_us, abs=0.05)
    assert len(data["points"]) == sum(bool(row.flops and row.time_us) for row in profile.rows())


def test_names_cannot_break_out(profile):
    evil = "</script><script>alert(1)</script>&\"'"
    graphs = tuple(dataclasses.replace(graph, graph=evil, model=evil) for graph in profile.graphs)
    cores = tuple(dataclasses.replace(core, models=(evil,)) for core in profile.cores)
    changed = dataclasses.replace(profile, name=evil, graphs=graphs, cores=cores, notes=(evil,))
    text = page(changed)
    assert sum(tag == "script" for tag, _ in parsed(text).found) == 2
    assert "<script>alert" not in text and drawn(text)["graphs"][0] == evil


def test_many_calls_are_drawn_together(profile, monkeypatch):
    monkeypatch.setattr(drawing, "MAX_CALLS", 2)
    segments = drawn(page(profile))["segments"]
    assert [count for *_, count, _ in segments] == [1, 2, 1]


def test_truncated_table_says_what_is_missing(profile, monkeypatch):
    monkeypatch.setattr(report, "MAX_ROWS", 3)
    assert f"The first 3 of {len(profile.rows())} rows." in page(profile)


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("/home/me/main/optimum_neuron/models/common/layers.py:31", "optimum_neuron/models/common/layers.py:31"),
        ("/env/lib/site-packages/transformers/models/bert/m.py:1", "transformers/models/bert/m.py:1"),
        ("/home/me/code/project/train.py:7", "code/project/train.py:7"),
        ("optimum_neuron/models/common/layers.py:31", "optimum_neuron/models/common/layers.py:31"),
        ("", ""),
    ],
)
def test_lines_are_shown_without_local_folders(line, short):
    assert short_line(line) == short


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
def test_browser_renders_report(profile, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page(profile))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    result = subprocess.run(
        ["chromium", *flags, f"--user-data-dir={tmp_path / 'browser'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.count("<svg") == 3 and result.stdout.count("<circle") == len(drawn(path.read_text())["points"])
    assert result.stdout.count('class="b-') > 100 and "Uncaught" not in result.stderr


def test_notebook_shows_totals_and_longest_rows(profile):
    notebook = parsed(profile._repr_html_())
    (frame,) = [attributes for tag, attributes in notebook.found if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts"
    output, data = " ".join(notebook.text), profile.to_dict()
    assert wording.time_span(data["device_us"] / 1e6) in output and "80 % interval" in output and "simulated" in output
    (plot,) = drawn(frame["srcdoc"])["plots"].values()
    assert [bar["value"] for bar in plot["rows"]] == [row["time_us"] for row in data["operators"][:20]]
    assert sum(bar["value"] for bar in plot["rows"]) <= data["device_us"] * (1 + 1e-9)
