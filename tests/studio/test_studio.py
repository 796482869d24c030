"""The studio: for this machine only, one sentence for a bad input, and the numbers of `estimate` and `compare`."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.studio import running_studio
from optimum_neuron.studio.request import StudioRequest
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("fastapi", "httpx", "uvicorn", "prometheus_client")),
    reason="needs the extra serve",
)
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, export_folder):
    """A folder with a checkpoint, an export, a profile, and a page that is none."""
    root = tmp_path_factory.mktemp("studio")
    save_tiny(root / "tiny", "llama", max_position_embeddings=512)
    shutil.copytree(export_folder, root / "exports" / "tiny_neuron")
    (root / "report.html").write_text("<!doctype html><title>Profile of tiny, simulated</title><p>device time", "utf-8")
    (root / "other.html").write_text("<!doctype html><title>Other</title>", "utf-8")
    (root / "outside").symlink_to(Path("/"))
    return root


@pytest.fixture(scope="module")
def url(folder):
    with running_studio(folder=folder) as url:
        yield url


@pytest.fixture
def ask(url):
    """Return a function that sends a request and returns status and JSON."""
    import httpx

    def send(path, body=None, **headers):
        method = "GET" if body is None else "POST"
        answer = httpx.request(method, url + path, json=body, headers=headers, timeout=120)
        return answer.status_code, answer.json()

    return send


def test_column_has_the_numbers_and_the_command_of_estimate(ask, folder):
    from optimum_neuron.simulator import estimate

    model = str(folder / "tiny")
    forms = [{"model": model, "instance": "inf2.xlarge", "sequence_length": "128", "tpot_ms": "1000"}]
    status, answer = ask("/api/estimate", [*forms, {**forms[0], "batch_size": "4"}])
    assert status == 200 and len(answer["columns"]) == 2
    data = estimate(model, instance="inf2.xlarge", sequence_length=128).to_dict()
    first, second = answer["columns"]
    rows = first["page"]["plots"]["memory"]["rows"]
    assert {row["part"]: row["value"] for row in rows}.items() <= data["hbm_bytes"].items()
    assert first["command"].endswith("--instance inf2.xlarge --sequence_length 128 --html estimate.html")
    assert [one["verdict"] for one in first["verdicts"]] == ["kept"]
    assert "--batch_size 4" in second["command"] and "simulated" in first["page"]["html"]
    assert "second / first" in answer["difference_html"]


def test_ranking_is_that_of_compare(ask, folder):
    from optimum_neuron.simulator import compare

    form = {"model": str(folder / "tiny"), "instance": "inf2.xlarge", "sequence_length": "64", "batch_size": "1"}
    status, answer = ask("/api/compare", [form | {"ttft_ms": "0.0001"}])
    options = {"instance": "inf2.xlarge", "sequence_length": 64, "batch_size": 1}
    ranked = compare(form["model"], **options).to_dict()["ranked"]
    (column,) = answer["columns"]
    points = column["page"]["plots"]["front"]["rows"]
    assert [(point["x"], point["y"]) for point in points] == [
        (one["latency_ms"]["value"], one["usd_per_1m"]["value"]) for one in ranked
    ]
    assert status == 200 and column["verdicts"][0]["verdict"] == "missed" and "--compare" in column["command"]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"model": ""}, None),
        ({"model": "-x"}, "-x"),
        ({"model": "m", "batch_size": "x"}, "x"),
        ({"model": "m", "batch_size": "-1"}, "-1"),
        ({"model": "m", "tpot_ms": "nan"}, None),
        ({"model": "m", "batch": "1"}, "batch_size"),
    ],
)
def test_bad_forms_are_known_errors(form, value):
    with pytest.raises(ConfigError) as error:
        StudioRequest.from_form(form)
    assert value is None or value in str(error.value.to_dict())


@pytest.mark.parametrize(
    "body",
    [[], {}, "x", [1], [{"model": "m"}] * 3, [{"model": EVIL}], [{"model": "/nowhere", "instance": "abc"}]],
    ids=str,
)
def test_bad_inputs_are_one_sentence(ask, body):
    status, answer = ask("/api/estimate", body)
    error = answer.get("error") or answer["columns"][0]["error"]
    assert status in (200, 400) and "Traceback" not in json.dumps(answer) and "\n" not in error and len(error) < 600


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
    ids=str,
)
def test_other_sites_cannot_use_it(ask, headers):
    status, answer = ask("/api/shelf", **headers)
    assert status == 403 and answer.keys() == {"error"}


def test_forms_of_other_sites_are_rejected(url):
    import httpx

    answer = httpx.post(f"{url}/api/estimate", content="[]", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 403


def test_page_is_whole_and_its_policy_is_strict(url):
    import httpx

    answer = httpx.get(url)
    assert re.findall(r"""(?:src|href)=["']""", answer.text.partition("<script>")[0]) == []
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert httpx.get(f"{url}/docs").status_code == httpx.get(f"{url}/openapi.json").status_code == 404


def test_shelf_lists_exports_and_profiles_below_the_folder(ask, url, folder):
    import httpx

    status, answer = ask("/api/shelf")
    assert status == 200
    assert [one["name"] for one in answer["exports"]] == ["exports/tiny_neuron"]
    assert answer["profiles"] == ["report.html"]
    page = httpx.get(f"{url}/profile", params={"name": "report.html"})
    assert page.text == (folder / "report.html").read_text()
    assert page.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    for name in ("other.html", "../report.html", "/etc/passwd", "outside/etc/passwd", ""):
        assert ask(f"/profile?name={name}")[0] == 400


def test_export_opens_as_a_profile(url):
    import httpx

    page = httpx.get(f"{url}/profile", params={"name": "exports/tiny_neuron"}, timeout=120)
    assert page.status_code == 200 and "<title>Profile of" in page.text


def test_taken_port_and_missing_folder_are_known_errors(cli, url, folder):
    port = url.rpartition(":")[2]
    result = cli("neuron", "studio", "--port", port, "--folder", str(folder))
    assert result.code == 1 and port in result.stderr and "Traceback" not in result.stderr
    assert cli("neuron", "studio", "--folder", str(folder / "nowhere")).code == 1


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_browser_shows_the_forms(url, tmp_path):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=3000", "--dump-dom", url]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert dom.count('name="model"') == 2 and "inf2.48xlarge" in dom and "Enter a model to begin." in dom
