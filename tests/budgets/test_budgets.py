"""Budgets: limits in both directions, what moved since the recorded run, and files that are no budget."""

from __future__ import annotations

import dataclasses
import json
from xml.etree import ElementTree

import pytest

from optimum_neuron.budgets.config import find_budget, read_budget
from optimum_neuron.budgets.limits import LIMITS
from optimum_neuron.budgets.report import check_budget, record_file
from optimum_neuron.errors import ConfigError
from optimum_neuron.nki import analyze, load_kernel, parse_argument
from optimum_neuron.simulator import FORMAT, QUANTITIES, constants, estimate
from tests.raising import raises
from tests.tiny import tiny_config

KERNEL = """
from optimum_neuron.nki import isa as nisa, language as nl

def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nl.store(out, tile)
    return out
"""
BUDGET = """
[kernels.double]
kernel = "kernels.py:double"
arguments = ["128x64"]
limits = {{ {} }}
"""


@pytest.fixture
def budget(tmp_path):
    """Write a budget of the kernel with limits, and return its path."""
    (tmp_path / "kernels.py").write_text(KERNEL)

    def write(limits="num_instructions = 3"):
        path = tmp_path / "neuron.toml"
        path.write_text(BUDGET.format(limits))
        return path

    return write


@pytest.fixture
def own_home(monkeypatch, tmp_path):
    """Scripts run in their own processes, which cannot use the cores that models of this process hold."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))


def test_values_are_those_of_the_analysis(budget):
    report = check_budget(budget("total_us = 1e9, sbuf_bytes = 256, roofline_share = 0.0"))
    analysis = analyze(load_kernel(f"{report.path.parent}/kernels.py:double"), parse_argument("128x64"))
    values = {row.quantity: row.value for row in report.rows}
    assert report.passed and values["sbuf_bytes"] == analysis.memory[0].peak == 256
    assert values["total_us"] == analysis.total_us and values["roofline_share"] == analysis.roofline_share


@pytest.mark.parametrize("limit", ["num_instructions = 2", "roofline_share = 1.0"])
def test_limit_that_is_not_kept(budget, limit):
    report = check_budget(budget(limit))
    assert not report.passed
    (failure,) = ElementTree.fromstring(report.to_junit()).iter("failure")
    assert failure.get("message").startswith(limit.split()[0]) and "past its limit" in report.to_markdown()


def test_what_moved_since_the_recorded_run(budget):
    path = budget()
    assert check_budget(path, record=True).reasons == {}
    assert json.loads(record_file(path).read_text())["entries"]["double"]["values"]["num_instructions"] == 3
    source = path.parent / "kernels.py"
    source.write_text(KERNEL.replace("    nl.store", "    nisa.activation(tile, nl.exp, tile)\n    nl.store"))
    report = check_budget(path)
    (row,) = (row for row in report.rows if row.quantity == "num_instructions")
    assert (row.value, row.recorded, row.passed, row.moved) == (4, 3, False, True)
    assert report.reasons["double"] == ("+1 nisa.activation(tile, nl.exp, tile)",)
    source.write_text(KERNEL)
    path.write_text(path.read_text().replace("128x64", "128x512"))
    bytes_of = f"+{128 * (512 - 64) * 4:.3g} bytes of"  # of float32, read once and written once
    operators = (f"{bytes_of} nl.store(out, tile)", f"{bytes_of} tile = nl.load(x)")
    assert check_budget(path).reasons["double"] == ("arguments: ['128x64'] -> ['128x512']", *operators)


def test_model_is_measured_as_estimate_and_check_do(tmp_path):
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path / "tiny")
    path = tmp_path / "pyproject.toml"
    options = 'instance = "trn1.2xlarge"\nsequence_length = 32\n'
    limits = "limits = { compiles = true, tpot_ms = 1e3, tokens_per_s = 1e9 }\n"
    path.write_text(f'[tool.neuron.models.chat]\nmodel = "tiny"\n{options}{limits}')
    report = check_budget(find_budget(tmp_path))
    rows = {row.quantity: row for row in report.rows}
    assert rows["compiles"].passed and rows["tpot_ms"].passed and not rows["tokens_per_s"].passed
    expected = estimate(tmp_path / "tiny", instance="trn1.2xlarge", sequence_length=32)
    assert rows["tpot_ms"].value == expected.tpot_ms.value
    assert any(name.startswith("aten.") and "layers.0" in name for name in report.measured["chat"].operators)
    assert sum(report.measured["chat"].flops.values()) == report.measured["chat"].values["flops"] > 0
    check_budget(path, record=True)
    config = json.loads((tmp_path / "tiny/config.json").read_text())
    (tmp_path / "tiny/config.json").write_text(
        json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1})
    )
    texts = check_budget(path).reasons["chat"]
    assert any("FLOPs" in text and "bytes" in text and "mlp" in text for text in texts), texts
    assert all(text.startswith("+") and "layers.*" in text for text in texts if " in " in text), texts


def test_constants_of_a_budget_are_beside_it_and_read_again(tmp_path):
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path / "tiny")
    path, options = tmp_path / "neuron.toml", {"instance": "trn1.2xlarge", "sequence_length": 32}
    shapes = "".join(f"{key} = {value!r}\n" for key, value in options.items())
    path.write_text(f'[models.chat]\nmodel = "tiny"\n{shapes}constants = "mine.json"\nlimits = {{ tpot_ms = 1e9 }}\n')
    for scale in (1.0, 3.0):
        mine = {"format": FORMAT, **dataclasses.asdict(constants())}
        for core in mine["cores"].values():
            core["launch_us"] *= scale
        (tmp_path / "mine.json").write_text(json.dumps(mine))
        expected = estimate(tmp_path / "tiny", constants=tmp_path / "mine.json", **options)
        (row,) = check_budget(path).rows
        assert row.value == pytest.approx(expected.tpot_ms.value)
    assert expected.tpot_ms.value > estimate(tmp_path / "tiny", **options).tpot_ms.value


def test_limits_of_models_are_quantities_of_an_estimate():
    of_check = {"compiles", "num_graphs", "num_host_operators", "num_operators", "flops"}
    facts = {name for name, limit in LIMITS["model"].items() if limit.by == "facts"}
    assert facts - of_check <= set(QUANTITIES)


@pytest.mark.full(days=2)
def test_padding_of_a_data_set(tmp_path):
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path / "tiny")
    (tmp_path / "prompts.csv").write_text("id,tokens\n1,12\n2,40\n3,16\n4,33\n")
    shapes = 'sequence_length = 64\nprefill_buckets = [16, 32]\ndataset = { file = "prompts.csv", column = "tokens" }\n'
    path = tmp_path / "neuron.toml"
    path.write_text(f'[models.chat]\nmodel = "tiny"\n{shapes}limits = {{ padding_share = 0.3 }}\n')
    (row,) = check_budget(path).rows
    # 12 and 16 run in 16; 40 and 33 run in a chunk of 32 and one of 16.
    assert row.value == (4 + 8 + 0 + 15) / (12 + 40 + 16 + 33)


SCRIPT = """
import sys
import torch
from optimum_neuron.xla import enable, sync

enable()
for length in map(int, sys.argv[1:]):
    print((torch.ones(length).to("xla") * 2).tanh().sum().item())
    sync()
"""


@pytest.mark.full(days=3)
@pytest.mark.parametrize(("arguments", "num_recompiles"), [([8, 8], 0), ([8, 4, 8], 1)])
def test_graphs_of_a_script(tmp_path, own_home, arguments, num_recompiles):
    (tmp_path / "train.py").write_text(SCRIPT)
    path = tmp_path / "neuron.toml"
    path.write_text(
        f'[scripts.train]\nscript = "train.py"\narguments = {arguments}\nlimits = {{ num_recompiles = 0 }}\n'
    )
    report = check_budget(path)
    (row,) = report.rows
    assert (row.value, row.passed) == (num_recompiles, not num_recompiles)
    assert report.measured["train"].values["num_reads"] == len(arguments)
    assert any(name.startswith("aten.tanh in ") for name in report.measured["train"].operators)


def test_script_that_fails_is_past_its_limits(tmp_path, own_home):
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    path = tmp_path / "neuron.toml"
    path.write_text('[scripts.train]\nscript = "train.py"\nlimits = { num_graphs = 5 }\n')
    (row,) = check_budget(path).rows
    assert row.value is None and not row.passed and "exit code 3" in row.problem


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("", {}),
        ("[model.chat]\n", {"name": "model"}),
        ("[models.chat]\nlimits = {}\n", {"entry": "chat"}),
        ('[models.chat]\nmodel = "x"\nlimits = { tpot = 1 }\n', {"name": "tpot"}),
        ('[models.chat]\nmodel = "x"\nlimits = { tpot_ms = "1" }\n', {"option": "tpot_ms", "value": "1"}),
        ('[models.chat]\nmodel = "x"\nlimits = { compiles = 1 }\n', {"option": "compiles", "value": 1}),
        ('[kernels.a]\nkernel = "a.py:b"\nargument = []\n', {"name": "argument"}),
        ('[scripts.a]\nscript = "a.py"\ngrid = []\n', {"name": "grid"}),
        ('[models.chat]\nmodel = "x"\nlimits = { padding_share = 1 }\n', {"entry": "chat"}),
        ('[models.chat]\nmodel = "x"\ndataset = "a.csv"\n', {"entry": "chat"}),
        ('[models.chat]\nmodel = "x"\ndataset = { file = "a.csv", columns = "a" }\n', {"name": "columns"}),
        ('[scripts.a]\nscript = "a.py"\n[kernels.a]\nkernel = "a.py:b"\n', {"name": "a"}),
        ('[models.chat]\nmodel = "x"\nsequence_lenght = 8\n', {"name": "sequence_lenght"}),
        ("models = 3 = 4", {}),
    ],
)
def test_files_that_are_no_budget(tmp_path, text, details):
    path = tmp_path / "neuron.toml"
    path.write_text(text)
    with raises(ConfigError, path=str(path), **details):
        read_budget(path)


def test_folder_without_a_budget_and_damaged_record(budget, tmp_path):
    with raises(ConfigError, path=str(tmp_path)):
        find_budget(tmp_path)
    path = budget()
    for entries in ("5", '{"double": [1]}', '{"double": {"values": 3}}', '{"double": {"values": {"total_us": "x"}}}'):
        record_file(path).write_text(f'{{"format": 1, "entries": {entries}}}')
        with raises(ConfigError, path=str(record_file(path))):
            check_budget(path)


def test_command_exits_with_1_past_a_limit(cli, budget, tmp_path):
    path, files = (
        budget("num_instructions = 2"),
        ("--junit", str(tmp_path / "a.xml"), "--markdown", str(tmp_path / "a.md")),
    )
    result = cli("neuron", "budget", str(path), *files)
    assert result.code == 1 and "past its limit" in result.stdout
    assert "<failure" in (tmp_path / "a.xml").read_text() and "| double |" in (tmp_path / "a.md").read_text()
    data = cli("neuron", "budget", str(budget()), "--json").json
    assert data["passed"] and data["simulated"] and data["rows"][0]["value"] == 3
