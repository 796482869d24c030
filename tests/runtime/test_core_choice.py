"""Choice of a model's cores, with its reason; limits from the environment."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError, CoreBusyError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, held_cores, num_usable
from optimum_neuron.runtime.core_process import PROCESS
from tests.raising import raises

SMALL, MEDIUM = INSTANCES["inf2.xlarge"], INSTANCES["inf2.24xlarge"]


def test_num_cores_are_claimed_up_front(start):
    first, second = start(MEDIUM, NEURON_RT_NUM_CORES="4"), start(MEDIUM, NEURON_RT_NUM_CORES="8")
    assert first.ask("claim", "bert") == [0]
    held = [(row["core_id"], row["model"]) for row in second.ask("held")]
    assert held == [(0, "bert"), (1, None), (2, None), (3, None)]
    assert first.ask("release", "bert") is None
    assert [row["model"] for row in second.ask("held")] == [None] * 4
    assert second.ask("claim", "llama", 8) == list(range(4, 12))
    assert first.ask("claim", "whisper", 4) == [0, 1, 2, 3]
    assert [first.ask("claim", f"tiny-{place}") for place in range(5)] == [[0], [1], [2], [3], [0]]


def test_num_cores_0_claims_every_core(start):
    first, second = start(NEURON_RT_NUM_CORES="0"), start()
    assert first.ask("claim", "bert") == [0]
    error = second.ask("claim", "llama")
    assert error["error"] == "CoreBusyError"
    assert "(none yet)" in error["message"].splitlines()[-2]


def test_busy_num_cores_are_refused(start):
    first, second = start(), start(NEURON_RT_NUM_CORES="2")
    assert first.ask("claim", "bert") == [0]
    error = second.ask("claim", "llama")
    assert error["error"] == "CoreBusyError" and error["details"]["num_cores"] == 2
    assert [row["core_id"] for row in second.ask("held")] == [0]


def test_num_cores_takes_effect_once(environ):
    reserving = {**environ, "NEURON_RT_NUM_CORES": "1"}
    with claim_cores(SMALL, model="bert", environ=reserving):
        pass
    with pytest.raises(ConfigError) as error:
        claim_cores(SMALL, model="bert", environ={**environ, "NEURON_RT_NUM_CORES": "2"})
    assert error.value.details == {"num_cores": 2, "reserved": [0]}
    PROCESS.close()  # cores reserved by this test would stay until the test run ends
    PROCESS.reserved.clear()


@pytest.mark.parametrize(("visible", "count", "core_id"), [("1", None, 1), ("1", "2", 1), ("0", "0", 0)])
def test_visible_cores_limit_and_have_precedence(environ, visible, count, core_id):
    environ |= {"NEURON_RT_VISIBLE_CORES": visible} | ({} if count is None else {"NEURON_RT_NUM_CORES": count})
    with claim_cores(SMALL, model="bert", environ=environ) as claim:
        assert claim.core_ids == (core_id,)
        assert f"allowed by NEURON_RT_VISIBLE_CORES={visible}" in claim.choice.reason
        assert ("precedence over NEURON_RT_NUM_CORES" in claim.choice.reason) == (count is not None)
        assert [row["core_id"] for row in held_cores(SMALL, environ=environ)] == [core_id]


@pytest.mark.parametrize(
    ("variables", "num_cores", "details"),
    [
        ({"NEURON_RT_VISIBLE_CORES": "1-3,7"}, 1, {"unknown": [2, 3, 7], "num_cores": 2}),
        ({"NEURON_RT_VISIBLE_CORES": "zero"}, 1, {"variable": "NEURON_RT_VISIBLE_CORES", "value": "zero"}),
        ({"NEURON_RT_NUM_CORES": "3"}, 1, {"count": 3, "num_cores": 2}),
        ({"NEURON_RT_NUM_CORES": "-1"}, 1, {"variable": "NEURON_RT_NUM_CORES", "value": "-1"}),
        ({"NEURON_RT_VISIBLE_CORES": "1"}, 2, {"num_cores": 2, "allowed": [1]}),
        ({"NEURON_RT_NUM_CORES": "1"}, 2, {"num_cores": 2, "allowed": [0, 1], "num_reserved": 1}),
        ({}, 3, {"num_cores": 3, "legal": [1, 2]}),
    ],
)
def test_unsatisfiable_restrictions_are_refused(environ, variables, num_cores, details):
    with raises(ConfigError, **details):
        claim_cores(SMALL, model="bert", num_cores=num_cores, environ=environ | variables)
    assert held_cores(SMALL, environ=environ) == []


def test_busy_visible_cores_are_refused_with_a_free_one(start, environ):
    assert start().ask("claim", "bert") == [0]
    with pytest.raises(CoreBusyError) as error:
        claim_cores(SMALL, model="llama", environ=environ | {"NEURON_RT_VISIBLE_CORES": "0"})
    assert "NEURON_RT_VISIBLE_CORES=1" in error.value.details["variables"]
    with claim_cores(SMALL, model="llama", environ=environ) as claim:
        assert claim.core_ids == (1,)


def test_models_of_one_process_share_cores_in_turn(environ):
    claims = [claim_cores(SMALL, model=f"model-{place}", environ=environ) for place in range(5)]
    assert [claim.core_ids for claim in claims] == [(0,), (1,), (0,), (1,), (0,)]
    held = [(row["core_id"], row["model"]) for row in held_cores(SMALL, environ=environ)]
    assert held == [(core, f"model-{number}") for core, number in ((0, 0), (0, 2), (0, 4), (1, 1), (1, 3))]
    claims[1].release()
    fewest = claim_cores(SMALL, model="fewest", environ=environ)
    assert fewest.core_ids == (1,)
    assert "models of this process on it: 1" in fewest.choice.reason
    (lost,) = fewest.choice.rejected
    assert (lost.candidate, lost.reason) == ("0", "models of this process on it: 3")
    for claim in (*claims, fewest):
        claim.release()
    assert held_cores(SMALL, environ=environ) == []


def test_equally_loaded_cores_are_used_in_turn(environ):
    taken = []
    for _ in range(3):
        with claim_cores(SMALL, model="bert", environ=environ) as claim:
            taken.append(claim.core_ids)
    assert taken == [(0,), (1,), (0,)]


def test_choice_has_a_reason(start, environ):
    worker = start()
    assert worker.ask("claim", "bert") == [0]
    with claim_cores(SMALL, model="llama", environ=environ) as claim:
        assert "of the 2 cores of inf2.xlarge" in claim.choice.reason
        assert "where the real runtime claims all of them" in claim.choice.reason
        (lost,) = claim.choice.rejected
        assert (lost.candidate, lost.reason) == ("0", f"core 0 is held by process {worker.pid} (bert)")


@pytest.mark.parametrize(
    ("instance", "visible", "num_cores", "expected"),
    [
        ("inf2.24xlarge", "1-6", 4, (2, 3, 4, 5)),
        ("trn1.32xlarge", "1-31", 8, (8, 9, 10, 11, 12, 13, 14, 15)),
        ("trn2.48xlarge", "2-7", 4, (4, 5, 6, 7)),
    ],
)
def test_several_cores_are_neighbors_where_legal(environ, instance, visible, num_cores, expected):
    environ |= {"NEURON_RT_VISIBLE_CORES": visible}
    with claim_cores(INSTANCES[instance], model="llama", num_cores=num_cores, environ=environ) as claim:
        assert claim.core_ids == expected


def test_explicit_core_counts_toward_process_limit(environ):
    environ["NEURON_RT_VISIBLE_CORES"] = "3,5,6"
    assert num_usable(MEDIUM, environ) == 3
    with claim_cores(MEDIUM, model="bert", start=1, environ=environ) as claim:
        assert claim.core_ids == (5,)
        assert "requested as 1" in claim.choice.reason
    for start, num_cores in ((3, 1), (-1, 1), (2, 2)):
        with raises(ConfigError, start=start, num_cores=3):
            claim_cores(MEDIUM, model="bert", start=start, num_cores=num_cores, environ=environ)


def test_reserved_cores_count_from_0(environ):
    environ["NEURON_RT_NUM_CORES"] = "2"
    assert num_usable(MEDIUM, environ) == 2
    with claim_cores(MEDIUM, model="bert", start=1, environ=environ) as claim:
        assert claim.core_ids == (1,)
    with raises(ConfigError, start=2, num_cores=2):
        claim_cores(MEDIUM, model="bert", start=2, environ=environ)
