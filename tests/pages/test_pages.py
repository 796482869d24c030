"""Pages: whole in themselves, escaped, with the numbers of the data; and the vendored files are the published ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from transformers import LlamaConfig

from optimum_neuron import suggest_buckets
from optimum_neuron.base.core import Choice, Rejected
from optimum_neuron.pages import (
    Page,
    benchmarks_page,
    buckets_page,
    check_page,
    comparison_page,
    estimate_page,
    move_page,
    plan_page,
    sweep_page,
    training_page,
)
from optimum_neuron.pages.estimates import pareto_front
from optimum_neuron.pages.page import Axis, plot_script
from optimum_neuron.simulator import (
    compare,
    estimate,
    estimate_grid,
    estimate_training,
    parse_slo,
    plan_capacity,
    poisson_trace,
    sweep_capacity,
)
from tests.markup import Checked

EVIL = "</script><script>alert('1')</script>\"&"


@pytest.fixture(scope="module")
def llama():
    return LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=256,
        max_position_embeddings=1024,
    )


@pytest.fixture(scope="module")
def reports(llama):
    """What each kind of page shows."""
    trace = poisson_trace(40.0, num_requests=60, num_prompt=24, num_answer=8)
    slo = parse_slo("ttft=500")
    swept = {"slo": slo, "instance": "inf2.xlarge", "batch_size": 4, "prefill_chunk_size": 128}
    return {
        estimate_page: estimate(llama, instance="inf2.xlarge", sequence_length=512),
        comparison_page: compare(llama, instance="inf2.xlarge", sequence_length=128, batch_size="auto"),
        training_page: estimate_training(llama, instance="trn1.32xlarge"),
        plan_page: plan_capacity(llama, trace, instance="inf2.xlarge", batch_size=2),
        sweep_page: sweep_capacity(llama, trace, **swept),
        buckets_page: suggest_buckets([12, 15, 60, 61, 500], max_buckets=3),
    }


@pytest.fixture(scope="module")
def results(llama, reports):
    """Plain data of each kind of page, as commands write it."""
    benchmark = {"what": "ours", "value": 2.0, "unit": "ms", "low": 1.5, "high": 2.5, "note": "7 rounds"}
    data = {page: report.to_dict() for page, report in reports.items()}
    data[estimate_page] |= {"grid": estimate_grid(llama, reports[estimate_page])}
    data[benchmarks_page] = {"host": "2 threads", "simulated_target": True, "results": {"decode": [benchmark]}}
    return data


PAGES = (estimate_page, comparison_page, training_page, plan_page, sweep_page, buckets_page, benchmarks_page)


def replaced(data, old, new):
    """Plain data with one text in place of another."""
    return json.loads(json.dumps(data).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__)
def test_pages_load_nothing_and_close_their_tags(results, page):
    text = page(results[page]).text()
    checked = Checked()
    checked.feed(text)
    assert checked.open == []
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in checked.found}
    assert not any({"src", "href"} & attributes.keys() for _, attributes in checked.found)
    own = text.replace(plot_script(), "")
    assert "http://" not in own and "https://" not in own and "@import" not in own and "url(" not in own
    words = " ".join(checked.text)
    label = {buckets_page: "counted", benchmarks_page: "measured"}.get(page, "simulated")
    assert label in words
    for line in results[page].get("assumptions", ()):
        assert line in words
    drawn = {attributes["data-plot"] for _, attributes in checked.found if "data-plot" in attributes}
    assert drawn == page(results[page]).plots.keys() != set()


@pytest.mark.parametrize("page", [page for page in PAGES if page is not buckets_page], ids=lambda page: page.__name__)
def test_text_of_users_is_escaped(results, page):
    data = results[page]
    name = {"results": "host"}.get(next(iter(data.keys() & {"results"}), ""), "model")
    text = page({**data, name: EVIL}).text()
    checked = Checked()
    checked.feed(text)
    assert checked.open == []
    assert [tag for tag, _ in checked.found].count("script") == 2
    assert "<script>alert" not in text and EVIL in "".join(checked.text)


def test_estimate_page_has_numbers_of_json(results):
    data = results[estimate_page]
    plots = estimate_page(data).plots
    assert {row["part"]: row["value"] for row in plots["memory"]["rows"]} == {
        name: size for name, size in data["hbm_bytes"].items() if name not in ("total", "available")
    }
    assert plots["memory"]["limits"] == [{"row": "one core", "value": data["hbm_bytes"]["available"]}]
    for name in ("ttft_ms", "tpot_ms"):
        points = [(row["x"], row["series"], row["y"], row["low"], row["high"]) for row in plots[f"grid-{name}"]["rows"]]
        assert points == [
            (
                one["sequence_length"],
                f"batch {one['batch_size']}",
                *(one[name][end] for end in ("value", "low", "high")),
            )
            for one in data["grid"]
        ]
    assert sum(row["value"] for row in plots["engines"]["rows"]) == pytest.approx(
        sum(time for parts in data["parts_ms"].values() for time in parts.values())
    )


def test_grid_has_estimates_of_each_size_within_the_model(llama, results):
    grid = results[estimate_page]["grid"]
    assert {one["sequence_length"] for one in grid} == {512, 1024}, "the model has 1024 positions"
    one = next(one for one in grid if (one["batch_size"], one["sequence_length"]) == (4, 1024))
    alone = estimate(llama, instance="inf2.xlarge", sequence_length=1024, batch_size=4, tensor_parallel_size=1)
    assert one["tpot_ms"] == alone.to_dict()["tpot_ms"]


def test_front_of_comparison_is_not_beaten(results):
    data = results[comparison_page]
    rows = comparison_page(data).plots["front"]["rows"]
    assert [(row["x"], row["y"]) for row in rows] == [
        (one["latency_ms"]["value"], one["usd_per_1m"]["value"]) for one in data["ranked"]
    ]
    for row in rows:
        beaten = any(
            other["x"] <= row["x"] and other["y"] <= row["y"] and (other["x"], other["y"]) != (row["x"], row["y"])
            for other in rows
        )
        assert not (row["front"] and beaten)
    assert rows[0]["front"], "the cheapest is on the front"


@pytest.mark.parametrize(
    ("points", "front"),
    [([], set()), ([(1, 1)], {0}), ([(1, 2), (1, 1), (2, 1)], {1}), ([(3, 1), (2, 2), (1, 3)], {0, 1, 2})],
)
def test_pareto_front(points, front):
    assert pareto_front(points) == front


def test_replay_over_time_adds_up(results):
    data = results[plan_page]
    spans = data["over_time"]
    length_s = spans[0]["end_s"] - spans[0]["begin_s"]

    def total(name):
        return sum(one[name] for one in spans) * length_s

    assert spans[-1]["end_s"] == pytest.approx(data["duration"])
    assert total("arrivals_per_s") == pytest.approx(60) == total("answers_per_s")
    assert total("tokens_per_s") == pytest.approx(data["total_output_tokens"])
    # Little's law: requests inside are arrivals times their mean time inside.
    assert total("running") + total("waiting") == pytest.approx(60 * data["mean_e2el_ms"] / 1e3, rel=1e-6)
    rows = plan_page(data).plots["replay-output tokens"]["rows"]
    assert [row["y"] for row in rows] == [one["tokens_per_s"] for one in spans]


def test_buckets_page_has_effect_of_each_bucket(results):
    data = results[buckets_page]
    plots = buckets_page(data).plots
    assert [row["value"] for row in plots["waste"]["rows"]] == [one["waste"] for one in data["options"]]
    padding = {row["row"]: row["value"] for row in plots["buckets"]["rows"] if row["part"] == "padding"}
    assert padding == {"up to 15": 3, "up to 61": 1, "up to 500": 0}
    for one in data["options"]:
        assert sum(each["padding_tokens"] for each in one["per_bucket"]) == one["padding_tokens"]
        assert sum(each["real_tokens"] for each in one["per_bucket"]) == one["real_tokens"]


def test_commands_write_the_page_of_their_json(cli, tmp_path):
    lengths, target = tmp_path / "lengths.txt", tmp_path / "buckets.html"
    lengths.write_text("10\n20\n40\n", encoding="utf-8")
    command = ("neuron", "buckets", "suggest", "--dataset", str(lengths), "--html", str(target))
    data = cli(*command, "--json").json
    assert data["files"] == {"html": str(target)}
    assert target.read_text(encoding="utf-8") == buckets_page(data).text()
    again = cli(*command)
    assert again.code == 1 and f"{target} exists" in again.stderr and "Traceback" not in again.stderr


def test_check_and_move_have_pages(tmp_path, cli):
    from tests.tiny import save_tiny

    folder = save_tiny(tmp_path / "<b>tiny", "llama")
    options = ("--sequence_length", "32", "--batch_size", "1")
    data = cli("neuron", "check", str(folder), *options, "--html", str(tmp_path / "check.html"), "--json").json
    assert "<b>tiny" not in (tmp_path / "check.html").read_text(encoding="utf-8")
    rows = check_page(data).plots["operators"]["rows"]
    flops = sum(one["flops"] for one in data["operators"] if one["flops"])
    assert sum(row["value"] for row in rows) == pytest.approx(flops)
    move = ("--from", "inf1", "--to", "inf2", "--html", str(tmp_path / "move.html"), "--json")
    data = cli("neuron", "check", str(folder), *options, *move).json
    checked = Checked()
    checked.feed(move_page(data).text())
    assert all(str(change) in " ".join(checked.text) for change in data["changes"])


def test_results_show_themselves_in_notebooks(reports):
    words = {}
    for page, report in reports.items():
        checked = Checked()
        checked.feed(report._repr_html_())
        (frame,) = [attributes for tag, attributes in checked.found if tag == "iframe"]
        assert frame["sandbox"] == "allow-scripts" and frame["srcdoc"] == page(report.to_dict()).text()
        words[page] = " ".join(checked.text)
    assert "80 % interval" in words[estimate_page], "viewers without frames show the table"
    choice = Choice(value="<a>", reason="r", rejected=(Rejected(candidate="<b>", reason="too small"),))
    assert "<td>&lt;a&gt;</td><td>r</td>" in choice._repr_html_() and "not &lt;b&gt;" in choice._repr_html_()


def test_infinite_numbers_have_no_place_in_plots():
    page = Page("p")
    page.sections.append(page.bars("a", [{"row": "x", "value": float("inf"), "tip": ""}], Axis(label="x")))
    assert page.plots["a"]["rows"][0]["value"] is None and '"value":null' in page.text()


def test_vendored_files_are_published_ones():
    folder = resources.files("optimum_neuron.pages.vendor")
    listed = json.loads((folder / "files.json").read_text())
    licenses = (folder / "README.md").read_text()
    for name, facts in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
        assert f"`{facts['package']}` {facts['version']}" in licenses and "Permission to use" in licenses
    assert {Path(str(file)).name for file in folder.iterdir()} == {*listed, "README.md", "files.json"}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
@pytest.mark.parametrize("page", (estimate_page, comparison_page, plan_page), ids=lambda page: page.__name__)
def test_browser_draws_every_plot(results, page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(results[page]).text(), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=3000", "--dump-dom", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    figures = re.findall(r'<figure class="plot" data-plot="([^"]*)"[^>]*>(.)', dom)
    assert figures and {after for _, after in figures} == {"<"} and dom.count("<svg") >= len(figures)
