"""The ledger: sums, errors, and release of charges."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from optimum_neuron.errors import ConfigError, DeviceMemoryError
from optimum_neuron.hardware import INSTANCES, TARGETS
from optimum_neuron.runtime import CATEGORIES, HbmLedger, ledger
from tests.waiting import in_threads

ROOT = Path(__file__).parents[2]
GIB = 2**30

FORKING = textwrap.dedent("""
    import os
    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.hbm import ledger

    instance = INSTANCES["inf2.xlarge"]
    charge = ledger(instance, 0).charge("weights", 1000, "bert")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    weights = ledger(instance, 0).used_by_category()["weights"]
    print("parent" if child else "child", weights)
""")


def make(core_id=4, target="trn2", capacity=24 * GIB):
    return HbmLedger(capacity_bytes=capacity, core_id=core_id, target=TARGETS[target])


def test_categories_add_up_to_used_bytes():
    core = make()
    charges = [core.charge(name, (place + 1) * GIB, "llama") for place, name in enumerate(CATEGORIES)]
    charges.append(core.charge("kv_cache", GIB, "bert"))
    assert core.used_by_category() == {"weights": GIB, "kv_cache": 3 * GIB, "scratch": 3 * GIB, "code": 4 * GIB}
    assert sum(core.used_by_category().values()) == core.used_bytes == 11 * GIB
    assert core.available_bytes == 13 * GIB


def test_last_byte_fits_and_one_more_does_not():
    core = make(capacity=1000)
    full = core.charge("weights", 1000, "bert")
    assert core.available_bytes == 0
    assert core.charge("scratch", 0, "bert").size_bytes == 0
    with pytest.raises(DeviceMemoryError) as excinfo:
        core.charge("scratch", 1, "bert")
    assert excinfo.value.details["missing_bytes"] == 1
    full.release()
    assert core.used_bytes == 0, "a failed charge leaves nothing"
    assert core.charge("scratch", 1000, "bert").size_bytes == 1000


def test_release_and_last_reference_free_once():
    core = make()
    first, second = core.charge("weights", GIB, "bert"), core.charge("weights", GIB, "bert")
    first.release()
    first.release()
    assert core.used_bytes == GIB == second.size_bytes
    del second
    gc.collect()
    assert core.used_bytes == 0


def test_refusal_has_table_by_category_and_owner():
    core = make()
    held = [
        core.charge("weights", 16 * GIB, "llama"),
        core.charge("kv_cache", 5 * GIB, "llama"),
        core.charge("weights", 2 * GIB, "bert"),
        core.charge("scratch", 512 * 2**20, "bert"),
    ]
    with pytest.raises(DeviceMemoryError) as excinfo:
        core.charge("kv_cache", 4 * GIB, "whisper")
    message = excinfo.value.message
    assert message.startswith("Failed to allocate 4.000GB (usage: tensors) on ND 1:NC 0: ")
    assert "'whisper' needs 3.500GB more" in message and "simulated" in message.splitlines()[1]
    rows = {
        line.split("|")[0].strip(): [cell.strip() for cell in line.split("|")[1:]] for line in message.splitlines()[2:]
    }
    assert rows[""] == ["total", "model constants", "tensors", "scratchpad", "model code"]
    assert rows["ND 1:NC 0"] == ["23.500GB", "18.000GB", "5.000GB", "512.000MB", "0B"]
    assert rows["llama"] == ["21.000GB", "16.000GB", "5.000GB", "0B", "0B"]
    assert rows["bert"] == ["2.500GB", "2.000GB", "0B", "512.000MB", "0B"]
    assert rows["available"][0] == "512.000MB"
    assert list(rows) == ["", "ND 1:NC 0", "llama", "bert", "available"]
    assert excinfo.value.details["used_by_category"]["weights"] == 18 * GIB
    assert len(held) == 4


def test_advice_names_smallest_sufficient_model():
    core = make()
    held = [core.charge("weights", size * GIB, owner) for owner, size in (("llama", 16), ("bert", 6), ("tiny", 1))]
    for size, advice in ((3, "Release 'bert', which uses 6.000GB, or"), (20, "Allocate 19.000GB less: use a smaller")):
        with pytest.raises(DeviceMemoryError) as error:
            core.charge("kv_cache", size * GIB, "whisper")
        assert error.value.hint.startswith(advice)
    assert held[0].owner == "llama"


def test_caller_advice_takes_precedence():
    core = make(capacity=GIB)
    with pytest.raises(DeviceMemoryError) as error:  # the function may look at the ledger
        core.charge("kv_cache", 3 * GIB, "llama", suggest=lambda missing: f"{missing} of {core.available_bytes}")
    assert error.value.hint == f"{2 * GIB} of {GIB}"


@pytest.mark.parametrize(
    ("category", "size_bytes", "details"),
    [
        ("weigths", 1, {"option": "category", "value": "weigths", "choices": list(CATEGORIES)}),
        ("weights", -1, {"size_bytes": -1}),
    ],
)
def test_wrong_charges_are_refused(category, size_bytes, details):
    with pytest.raises(ConfigError) as error:
        make().charge(category, size_bytes, "bert")
    assert error.value.details == details


def test_threads_never_exceed_capacity():
    core, kept, error = make(capacity=100), [], []

    def work():
        for _ in range(50):
            try:
                kept.append(core.charge("scratch", 1, "bert"))
            except DeviceMemoryError:
                error.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads(*[work] * 4)
    finally:
        sys.setswitchinterval(interval)
    assert (len(kept), len(error), core.available_bytes) == (100, 100, 0)


@pytest.mark.parametrize(
    ("instance", "core_id", "name", "capacity", "microcode"),
    [
        # Cores that no other test of the same process loads a model on.
        ("inf2.48xlarge", 23, "ND 11:NC 1", 16 * GIB, 96 * 2**20),
        ("trn1.32xlarge", 31, "ND 15:NC 1", 16 * GIB, 96 * 2**20),
        ("trn2.48xlarge", 5, "ND 1:NC 1", 24 * GIB, 192 * 2**20),
    ],
)
def test_one_ledger_for_each_core_with_its_microcode(instance, core_id, name, capacity, microcode):
    core = ledger(INSTANCES[instance], core_id)
    assert core is ledger(INSTANCES[instance], core_id)
    assert core is not ledger(INSTANCES[instance], core_id - 1)
    assert (core.name, core.capacity_bytes) == (name, capacity)
    gc.collect()
    assert core.used_by_category() == {"weights": 0, "kv_cache": 0, "scratch": 0, "code": microcode}


def test_forked_child_starts_with_empty_ledgers():
    result = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.split() == ["child", "0", "parent", "1000"]


def test_advice_never_removes_microcode():
    core = ledger(INSTANCES["inf2.8xlarge"], 0)
    with pytest.raises(DeviceMemoryError) as excinfo:
        core.charge("weights", core.capacity_bytes, "llama")
    assert "  microcode" in excinfo.value.message and "Release" not in excinfo.value.hint
    assert excinfo.value.details["missing_bytes"] == 96 * 2**20


def test_ledger_lists_owners_and_categories():
    core = ledger(INSTANCES["inf2.8xlarge"], 1)
    core.attach("torch tensors", "kv_cache", used_bytes=lambda: 7, set_limit=lambda limit: None)
    with_cache = [core.charge("weights", 5, "bert"), core.charge("kv_cache", 3, "bert")]
    nothing = dict.fromkeys(CATEGORIES, 0)
    assert core.used_by_owner() == {
        "microcode": nothing | {"code": 96 * 2**20},
        "bert": nothing | {"weights": 5, "kv_cache": 3},
        "torch tensors": nothing | {"kv_cache": 7},
    }
    assert len(with_cache) == 2


@pytest.mark.parametrize("core_id", [-1, 2])
def test_missing_core_has_no_ledger(core_id):
    with pytest.raises(ConfigError) as error:
        ledger(INSTANCES["inf2.xlarge"], core_id)
    assert error.value.details == {"core_id": core_id, "num_cores": 2}


def test_docs_show_the_code_output():
    core = make(core_id=0, target="inf2", capacity=16 * GIB)
    sizes = (
        ("code", 96, "microcode"),
        ("weights", 13 * 1024, "llama"),
        ("kv_cache", 1024, "llama"),
        ("scratch", 150, "llama"),
        ("weights", 438, "bert"),
    )
    held = [core.charge(category, size * 2**20, owner) for category, size, owner in sizes]
    with pytest.raises(DeviceMemoryError) as excinfo:
        core.charge("kv_cache", 3 * GIB // 2, "whisper")
    assert f"```\n{excinfo.value}\n```\n" in (ROOT / "docs" / "runtime.md").read_text()
    assert len(held) == 5


def test_every_category_is_on_page():
    page = (ROOT / "docs" / "runtime.md").read_text()
    assert all(
        f"| `{name}` | {category.runtime_name} | {category.meaning}" in page for name, category in CATEGORIES.items()
    )


def test_cores_of_inf1_share_the_memory_of_their_chip():
    instance = INSTANCES["inf1.6xlarge"]
    first, second, other_chip = (ledger(instance, core) for core in (0, 1, 4))
    charges = [first.charge("weights", 6 * 2**30, "large")]  # more than a quarter of the chip
    assert second.available_bytes < 2 * 2**30 < other_chip.available_bytes
    with pytest.raises(DeviceMemoryError) as error:
        second.charge("weights", 2 * 2**30, "next")
    assert error.value.details["core_id"] == 1
    charges[0].release()
    second.charge("weights", 2 * 2**30, "next").release()
