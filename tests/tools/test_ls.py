"""`neuron-ls`: the documented table and JSON, processes of this machine, topologies, errors."""

from __future__ import annotations

import json
import os

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, ledger, size_text
from optimum_neuron.tools import devices, drawing, ls
from tests.runtime.conftest import start  # noqa: F401  a fixture: another process that claims cores
from tests.waiting import soon

SMALL = INSTANCES["inf2.xlarge"]
MICROCODE = 96 * 2**20


def listed(capsys, *words):
    assert ls.main(["--json-output", *words]) == 0
    return json.loads(capsys.readouterr().out)


def table(capsys, *words):
    assert ls.main(list(words)) == 0
    return capsys.readouterr().out


def test_idle_devices_have_documented_fields(capsys):
    all_devices = listed(capsys, "--instance", "trn2.48xlarge")
    assert len(all_devices) == 16 and all(device["simulated"] is True for device in all_devices)
    assert all_devices[0] == {
        "neuron_device": 0, "bdf": None, "cpu_affinity": None, "numa_node": None, "connected_to": [12, 3, 4, 1],
        "nc_count": 4, "logical_neuroncore_config": 2, "memory_size": 103079215104, "neuroncore_ids": [0, 1, 2, 3],
        "neuron_processes": [], "instance_type": "trn2.48xlarge", "simulated": True,
    }  # fmt: skip
    assert all_devices[1]["connected_to"] == [13, 0, 5, 2] and all_devices[1]["neuroncore_ids"] == [4, 5, 6, 7]


def test_process_and_its_model_are_listed_until_exit(capsys, start):  # noqa: F811
    worker = start()
    worker.ask("claim", "bert")
    (device,) = listed(capsys)
    (process,) = device["neuron_processes"]
    assert process["pid"] == worker.pid and process["models"] == ["bert"] and process["neuroncore_ids"] == [0]
    assert "python" in process["command"] and process["neuron_runtime_version"].endswith("(simulated)")
    assert soon(lambda: listed(capsys)[0]["neuron_processes"][0]["memory_used_bytes"]) == MICROCODE
    worker.kill()
    assert listed(capsys, "--instance", "inf2.xlarge")[0]["neuron_processes"] == []


def test_table(capsys):
    output = table(capsys, "--instance", "inf2.48xlarge").splitlines()
    assert output[:3] == ["instance-type: inf2.48xlarge", "instance-id: simulated", "logical-neuroncore-config: 1"]
    assert [cell.strip() for cell in output[7].strip("|").split("|")] == ["0", "2", "32 GB", "11, 1"]
    assert len({len(line) for line in output[3:]}) == 1 and len(output) == 7 + 12 + 1


def test_table_with_processes(capsys):
    with claim_cores(SMALL, model="bert") as one, claim_cores(SMALL, model="llama") as other:
        weights = ledger(SMALL, other.core_ids[0]).charge("weights", 2**30, "llama")
        ledgers = [ledger(SMALL, core) for core in (*one.core_ids, *other.core_ids)]

        def shown() -> str:
            """The table, if it has what the ledgers say: models of earlier tests hold HBM until they are garbage."""
            output = table(capsys)
            return output if size_text(sum(each.used_bytes for each in ledgers)) in output else ""

        narrow = soon(shown)
        assert sum(each.used_bytes for each in ledgers) >= 2**30 + 2 * MICROCODE
        wide = table(capsys, "--wide")
        weights.release()
    assert f"| {os.getpid()} " in narrow and "RUNTIME" in narrow and "llama" not in narrow
    assert "bert, llama on 0-1" in wide and "CORE IDS" in wide


def test_cores_of_another_instance_are_pointed_at(capsys):
    with claim_cores(SMALL, model="bert"), claim_cores(INSTANCES["trn1.2xlarge"], model="llama"):
        assert listed(capsys, "--instance", "trn1.2xlarge")[0]["neuron_processes"][0]["models"] == ["llama"]
        ls.main(["--instance", "trn1.2xlarge"])
    assert "hold cores of inf2.xlarge too" in capsys.readouterr().err


def test_bad_lines_are_errors(capsys, mistyped):
    assert ls.main(["--instance", "inf2.xlage"]) == 1
    assert "did you mean 'inf2.xlarge'" in capsys.readouterr().err
    assert "--json-output" in mistyped(ls.main, "--jsn-output")


def test_topology_of_torus_has_links_around_rows_and_columns(capsys):
    output = (
        table(capsys, "--topology", "--instance", "trn1.32xlarge").split("Neuron Device Topology\n")[1].splitlines()
    )
    assert output[1] == "*-[ 0  ]--[ 1  ]--[ 2  ]--[ 3  ]-*" and output[2].count("|") == 4
    assert len(output) == 4 + 3 + 2 and output[0] == output[-1] and output[0].count("*") == 4


@pytest.mark.parametrize(
    ("name", "picture"),
    [
        ("inf2.24xlarge", "*-" + "--".join(f"[ {n}  ]" for n in range(6)) + "-*"),
        ("inf1.6xlarge", "  " + "--".join(f"[ {n}  ]" for n in range(4))),
        ("inf2.xlarge", "The devices of this instance have no links to each other."),
    ],
)
def test_other_topologies_are_one_line(capsys, name, picture):
    assert table(capsys, "-t", "-a", "--instance", name).split("Neuron Device Topology\n")[1] == picture + "\n"


@pytest.mark.parametrize("name", INSTANCES)
def test_links_go_both_ways_and_every_instance_can_be_drawn(name):
    all_devices = devices(INSTANCES[name])
    for device in all_devices:
        for other in device.connected_to or ():
            assert other != device.index and device.index in (all_devices[other].connected_to or ())
    lines = drawing(all_devices)
    known = all(device.connected_to is not None for device in all_devices) and len(all_devices) > 1
    assert sum(line.count("[") for line in lines) == (len(all_devices) if known else 0)
