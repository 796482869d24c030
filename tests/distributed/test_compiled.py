"""Compiled graphs of models in parts: collectives are in them, and losses are those of transformers' Trainer."""

from __future__ import annotations

import pytest

from tests.distributed.test_layouts import NUM_STEPS, TOLERANCE, run_cases

COMPILED = ("sp", "pp", "zero_1", "cp")
"""Cases of two processes."""


@pytest.fixture(scope="module")
def found(built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("two"), 2, NUM_STEPS, tuple(f"compiled-{case}" for case in COMPILED))


@pytest.fixture(scope="module")
def reference(built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("one"), 0, NUM_STEPS, ("tp",))["tp"]


@pytest.mark.parametrize("case", COMPILED)
def test_losses_are_those_of_the_cpu(found, reference, case):
    assert found[f"compiled-{case}"]["losses"] == pytest.approx(reference, abs=TOLERANCE)


@pytest.mark.parametrize("case", ["sp", "pp"])
def test_layers_in_parts_and_stages_are_whole_graphs(found, case):
    assert found[f"compiled-{case}"]["kinds"] == ["backward", "forward"] and not found[f"compiled-{case}"]["breaks"]
