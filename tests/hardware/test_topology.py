"""Legal core counts."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES, legal_core_counts, require_core_count
from tests.raising import raises


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("inf1.xlarge", (1, 2, 3, 4)),
        ("inf2.xlarge", (1, 2)),
        ("inf2.24xlarge", (1, 2, 4, 6, 8, 10, 12)),
        ("trn1.2xlarge", (1, 2)),
        ("trn1.32xlarge", (1, 2, 8, 16, 32)),
        ("trn1n.32xlarge", (1, 2, 8, 16, 32)),
        ("trn2.3xlarge", (1, 2, 4)),
        ("trn2.48xlarge", (1, 2, 4, 8, 16, 32, 64)),
    ],
)
def test_core_counts(name, counts):
    assert legal_core_counts(INSTANCES[name]).counts == counts


@pytest.mark.parametrize("name", INSTANCES)
def test_one_and_all_cores_are_always_legal(name):
    legal = legal_core_counts(INSTANCES[name])
    assert (legal.counts[0], legal.counts[-1]) == (1, INSTANCES[name].num_logical_cores())
    require_core_count(INSTANCES[name], legal.counts[-1])
    assert list(legal.counts) == sorted(set(legal.counts))
    assert legal.source and legal.rule


def test_counts_follow_logical_core_size():
    assert legal_core_counts(INSTANCES["trn2.3xlarge"], lnc=1).counts == (1, 2, 4, 8)
    with raises(ConfigError, code="NCC_EARG001", lnc=2):
        legal_core_counts(INSTANCES["inf2.48xlarge"], lnc=2)


def test_unpublished_rules_are_labelled_and_torus_is_aligned():
    assert {i.family for i in INSTANCES.values() if legal_core_counts(i).published} == {"inf1", "inf2", "trn1", "trn1n"}
    assert "inferred" in legal_core_counts(INSTANCES["trn2.48xlarge"]).source
    assert legal_core_counts(INSTANCES["trn1.32xlarge"]).aligned
    assert not legal_core_counts(INSTANCES["inf2.48xlarge"]).aligned


@pytest.mark.parametrize(
    ("name", "count", "near"),
    [
        ("trn1.32xlarge", 24, "16 or 32"),
        ("trn1.32xlarge", 4, "2 or 8"),
        ("inf2.48xlarge", 3, "2 or 4"),
        ("inf2.xlarge", 8, "2"),
        ("inf2.xlarge", 0, "1"),
    ],
)
def test_illegal_counts_are_refused_with_neighbors(name, count, near):
    with pytest.raises(ConfigError) as error:
        require_core_count(INSTANCES[name], count)
    assert error.value.hint == f"Use {near}."
    assert error.value.details["legal"] == list(legal_core_counts(INSTANCES[name]).counts)
    assert error.value.details["source"] == legal_core_counts(INSTANCES[name]).source
