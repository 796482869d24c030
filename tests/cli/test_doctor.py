import dataclasses

import pytest

from optimum_neuron.cli import machine
from tests.cli.test_diagnosis import GOOD


@pytest.fixture
def doctor(cli, monkeypatch):
    def run(*words, **changes):
        monkeypatch.setattr(machine, "examine", lambda: dataclasses.replace(GOOD, **changes))
        return cli("neuron", "doctor", *words)

    return run


def test_good_machine(doctor):
    result = doctor()
    assert result.code == 0
    assert result.stdout.splitlines()[0].split() == ["verdict", "check", "found", "consequence"]
    assert result.stdout.splitlines()[-1] == "verdict: ok"
    assert result.stderr == "next: optimum-cli neuron demo\n"


def test_warning_is_exit_code_0_with_its_remedy(doctor):
    result = doctor(compiler=None)
    assert result.code == 0 and "verdict: warn\n  C++ compiler: apt install g++" in result.stdout


def test_failure_is_exit_code_1(doctor):
    result = doctor("--quiet", packages={"torch": "2.12.0", "transformers": "5.23.0"})
    assert (result.code, result.stdout) == (1, "fail\n")


def test_json_has_every_finding(doctor):
    data = doctor("--json", compiler=None).json
    assert data["verdict"] == "warn"
    (finding,) = [finding for finding in data["findings"] if finding["verdict"] != "ok"]
    assert finding["check"] == "C++ compiler"
    assert set(finding) == {"check", "verdict", "found", "consequence", "remedy"}


def test_this_machine_can_be_examined(cli):
    result = cli("neuron", "doctor", "--json")
    assert result.code == (1 if result.json["verdict"] == "fail" else 0)
    assert {finding["check"] for finding in result.json["findings"]} >= {
        "torch",
        "memory",
        "compile cache",
        "own caches",
    }
