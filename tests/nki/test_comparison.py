"""`compare` and `tune`: times by hand from the published costs of `analyze`, results by torch."""

import numpy as np
import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.nki import analyze, compare, isa as nisa, jit, language as nl, tune


def scaled(x, columns=512, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for begin in range(0, x.shape[1], columns):
        part = slice(begin, begin + columns)
        tile = nl.load(x[:, part])
        nisa.tensor_scalar(tile, tile, nl.multiply, factor)
        nl.store(out[:, part], tile)
    return out


def scaled_on_scalar_engine(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.activation(tile, nl.copy, tile, scale=2.0)
    nl.store(out, tile)
    return out


X = torch.arange(128 * 1024, dtype=torch.float32).reshape(128, 1024)


def test_lines_of_two_versions_are_matched_by_their_text():
    before, after = analyze(scaled, X), analyze(scaled_on_scalar_engine, X)
    comparison = compare(before, after)
    assert comparison.difference == 0 and comparison.speedup == before.total_us / after.total_us
    kinds = {(line.after or line.before).source.split("(")[0]: line.kind for line in comparison.lines}
    assert kinds == {
        "tile = nl.load": "changed",
        "nisa.activation": "changed",
        "nl.store": "changed",
    }
    moved = comparison.lines[0].moved_us
    assert moved["vector"] == pytest.approx(-before.busy_us["vector"]) and moved["scalar"] == pytest.approx(
        after.busy_us["scalar"]
    )


def test_costs_of_all_lines_are_those_of_the_kernel():
    analysis = analyze(scaled, X)
    same = compare(analysis, analysis)
    assert {line.kind for line in same.lines} == {"same"} and not any(line.moved_us for line in same.lines)
    for engine, busy_us in analysis.busy_us.items():
        assert sum(line.before.busy_us.get(engine, 0.0) for line in same.lines) == pytest.approx(busy_us)
    assert sum(line.before.hbm_bytes for line in same.lines) == analysis.roofline.hbm_bytes == 2 * X.nbytes


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (torch.ones(2), torch.ones(2), 0.0),
        (torch.tensor([4.0, 1.0]), torch.tensor([4.0, 2.0]), 0.25),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0]), 0.0),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([0.0, 1.0]), float("inf")),
        (torch.ones(2), torch.ones(3), None),
        ((np.ones(2), np.zeros(1)), (np.ones(2), np.ones(1)), 1.0),
    ],
)
def test_difference_of_results(one, other, difference):
    from optimum_neuron.nki.comparison import difference_of

    assert difference_of(one, other) == difference


def test_tuning_finds_what_a_search_by_hand_finds():
    space = {"columns": [64, 128, 512, 1024]}
    by_hand = {columns: analyze(scaled, X, columns).total_us for columns in space["columns"]}
    tuning = tune(jit(scaled), X, space=space)
    assert tuning.choice.value == {"columns": min(by_hand, key=by_hand.get)}
    assert {trial.options["columns"]: trial.total_us for trial in tuning.trials} == by_hand
    assert torch.equal(tuning.analysis.result, 2 * X) and tuning.num_candidates == 4


def test_candidates_with_another_result_a_broken_rule_or_too_large_tiles_are_rejected():
    wide = torch.ones(128, 69632)
    tuning = tune(scaled, wide, space={"columns": [2048, 0, 70000, 69632], "factor": [2.0, 3.0]})
    assert tuning.choice.value == {"columns": 2048, "factor": 2.0}
    problems = {(trial.options["columns"], trial.options["factor"]): trial.problem for trial in tuning.trials}
    assert len(problems) == 8 and [key for key, problem in problems.items() if not problem] == [(2048, 2.0)]
    assert "0.5 of the largest" in problems[2048, 3.0] and "278528" in problems[69632, 2.0]
    assert len(tuning.choice.rejected) == 7


def test_kernels_that_write_their_argument_start_from_the_same_values():
    def doubled(x, columns):
        for begin in range(0, x.shape[1], columns):
            tile = nl.load(x[:, begin : begin + columns])
            nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nl.store(x[:, begin : begin + columns], tile)

    x = torch.ones(128, 512)
    tuning = tune(doubled, x, space={"columns": [128, 512]})
    assert not any(trial.problem for trial in tuning.trials) and torch.equal(x, torch.ones(128, 512))


def test_search_ends_in_time_and_says_what_it_left():
    tuning = tune(scaled, X, space={"columns": [128, 256, 512]}, seconds=0)
    assert len(tuning.trials) == 1 and "2 did not run within 0 s" in tuning.choice.reason


@pytest.mark.parametrize("space", [{}, {"columns": []}, {"colums": [1]}, {"x": [1], "columns": [128]}])
def test_space_that_is_none(space):
    with pytest.raises(ConfigError):
        tune(scaled, X, space=space)


def test_no_candidate_that_can_be_chosen():
    with pytest.raises(ConfigError) as caught:
        tune(scaled, X, space={"columns": [0, 2048]})
    assert len(caught.value.details["trials"]) == 2
