"""Published values calibrate constants that never saw them; few rows move little; contradictions have a reason."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Normal, StudentT
from transformers import BertConfig, LlamaConfig

sys.path.append(str(Path(__file__).parents[3] / "tools/fidelity"))

from calibrated import halves, write_rows
from cases import read_rows

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator import calibrate, compare, compare_run, constants, estimate, flat
from optimum_neuron.simulator.calibration.predicting import SHARED
from optimum_neuron.simulator.calibration.update import as_published, update
from optimum_neuron.simulator.fitted import read_constants
from tests.raising import raises
from tests.simulator.calibration.conftest import GENAI_PERF, OPTIONS, PROFILE, VLLM_SERVE

HEADER = "model,instance,tensor_parallel_size,batch_size,sequence_length"


def table(tmp_path, columns, *rows):
    path = tmp_path / "measured.csv"
    path.write_text("\n".join((f"{HEADER},{columns}", *rows)))
    return path


def errors(path, values):
    found = [pair for run in compare_run(path, constants=values) for pair in run.phases.values()]
    return np.array([abs(predicted.value / measured - 1) for measured, predicted in found])


@pytest.mark.parametrize(("category", "instance"), [("hybrid", "trn2.48xlarge"), ("mixture", "inf2.8xlarge")])
def test_half_of_published_rows_predicts_the_other(tmp_path, category, instance):
    """Both classes are in no fit, so that the constants never saw these values."""
    rows = [row for row in read_rows() if row.metric == "tpot_ms"]
    paths = [tmp_path / f"half{half}.csv" for half in (0, 1)]
    for own, path in zip(halves(rows, category, instance), paths, strict=True):
        write_rows(own, path)
    before, after = [], []
    for path, other in (paths, paths[::-1]):
        before += errors(other, constants()).tolist()
        after += errors(other, calibrate([path]).constants).tolist()
    assert np.median(before) > 0.25 and np.median(after) < 0.12 and max(after) < max(before)


def test_one_value_moves_constants_less_than_many(tmp_path, llama):
    first = estimate(llama, **OPTIONS).tpot_ms.value
    row = f"{llama},inf2.xlarge,2,4,256,{1.3 * first}"
    one, many = (calibrate([table(tmp_path, "tpot_ms", *[row] * n)]) for n in (1, 12))
    moves = [found.values[0].after / found.values[0].before for found in (one, many)]
    assert 1 < moves[0] < moves[1] <= 1.31
    assert one.constants.spread["scale.decoder.tpot_ms"] > many.constants.spread["scale.decoder.tpot_ms"]
    exact = calibrate([table(tmp_path, "tpot_ms", row.replace(str(1.3 * first), str(first)))])
    assert exact.moved() == [] and exact.errors()[0]["after"] < 1e-6
    others = {name for name in flat(one.constants) if name.startswith(("cores.1", "cores.3", "cores.4"))}
    assert others and all(flat(one.constants)[name] == flat(constants())[name] for name in others)


@pytest.mark.parametrize("outlier", [0.0, 1.5])
def test_update_is_the_posterior_of_a_linear_model(outlier):
    """Its mode by torch's densities, and around it the formula of Bayesian regression (Gelman et al., BDA, 14.2)."""
    chance = np.random.default_rng(0)
    slopes, spreads, noise = chance.normal(size=(9, 3)), np.array([0.3, 0.1, 0.2]), np.full(9, 0.2)
    measured = slopes @ np.array([0.1, -0.05, 0.1]) + 0.05 * chance.normal(size=9)
    measured[7] += outlier
    found = update(lambda moved: slopes @ moved, measured, noise, np.ones(9), spreads)
    moved = torch.tensor(found.moved, requires_grad=True)
    errors = torch.tensor(measured) - torch.tensor(slopes) @ moved
    density = StudentT(4.0, 0.0, torch.tensor(noise)).log_prob(errors).sum()
    (density + Normal(0.0, torch.tensor(spreads)).log_prob(moved).sum()).backward()
    assert moved.grad.numpy() * np.sqrt(np.diag(found.covariance)) == pytest.approx(0, abs=1e-2)
    assert (found.shares[7] < 0.1) == bool(outlier) and found.shares[:7].min() > 0.8
    precisions = found.precisions
    covariance = np.linalg.inv((slopes.T * precisions) @ slopes + np.diag(spreads**-2))
    assert found.moved == pytest.approx(covariance @ (slopes.T * precisions) @ measured, abs=1e-3)
    assert found.covariance == pytest.approx(covariance, rel=1e-6)
    kept = np.where(np.arange(9) == 4, 0.0, precisions)
    without = np.linalg.inv((slopes.T * kept) @ slopes + np.diag(spreads**-2))
    predicted, variances = found.without(np.arange(9) == 4)
    assert predicted[4] == pytest.approx(slopes[4] @ without @ (slopes.T * kept) @ measured, abs=1e-3)
    assert variances[4] == pytest.approx(slopes[4] @ without @ slopes[4], rel=1e-6)


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_published_row_that_contradicts_moves_little(tmp_path, factor):
    """Of published steps on one instance, one is made three times as long or as short."""
    rows = [row for row in read_rows() if row.metric == "tpot_ms"]
    own = [row for half in halves(rows, "decoder", "inf2.48xlarge") for row in half][:8]
    path = tmp_path / "measured.csv"

    def calibrated(changed):
        write_rows(changed, path)
        return calibrate([path])

    plain = calibrated(own)
    wrong = calibrated([dataclasses.replace(own[0], value=factor * own[0].value), *own[1:]])
    without, before, after = (flat(one.constants) for one in (calibrated(own[1:]), plain, wrong))
    assert max(abs(np.log(after[name] / without[name])) for name in without) < 0.02
    assert max(abs(np.log(before[name] / without[name])) for name in without) < 0.05
    (value,) = [one for one in wrong.values if one.measured == factor * own[0].value]
    assert value.contradicted and value.counted < 0.05


@pytest.mark.parametrize(("number", "factor"), [(1, 3.0), (3, 3.0), (1, 1 / 3)])
def test_few_values_of_a_small_model_move_the_host_little(tmp_path, llama, number, factor):
    """Its first token is mostly the host's time, which large models hardly show: the posterior, summed on a grid."""
    first, host = estimate(llama, **OPTIONS).ttft_ms, "hosts.vllm.prefill_ms.others"
    share, band = flat(constants())[host] / first.value, constants().bands["decoder.ttft_ms"]
    deviation = np.log(band.high / band.low) / (2 * Normal(0.0, 1.0).icdf(torch.tensor(0.9)).item())
    common, noise = np.sqrt(SHARED) * deviation, np.sqrt(1 - SHARED) * deviation
    moves, factors = torch.linspace(-2.5, 2.5, 501)[:, None], torch.linspace(-1.2, 1.2, 301)[None, :]
    predicted = torch.log(share * torch.exp(moves) + 1 - share) + factors
    chance = number**0.5 * StudentT(4.0, predicted, noise).log_prob(torch.tensor(factor).log())
    chance = chance + Normal(0.0, common / share).log_prob(moves) + Normal(0.0, common).log_prob(factors)
    mean = (torch.softmax(chance.flatten(), 0).reshape(chance.shape) * moves).sum()
    row = f"{llama},inf2.xlarge,2,4,256,{factor * first.value}"
    found = calibrate([table(tmp_path, "ttft_ms", *[row] * number)])
    assert flat(found.constants)[host] / flat(constants())[host] == pytest.approx(mean.exp().item(), rel=0.03)
    assert 1 / 1.25 < mean.exp() < 1.25


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_few_steps_of_a_small_model_move_no_constant_far(tmp_path, llama, factor):
    row = f"{llama},inf2.xlarge,2,4,256,{factor * estimate(llama, **OPTIONS).tpot_ms.value}"
    found = calibrate([table(tmp_path, "tpot_ms", *[row] * 3)])
    assert all(1 / 1.25 < one["factor"] < 1.25 for one in found.moved())
    assert max(value.counted for value in found.values) < 0.05


def test_spreads_are_no_wider_than_published_values_allow():
    slopes = np.array([[0.5, -0.1, 0.0], [0.2, 0.9, 0.0]])
    found = as_published(np.array([0.4, 0.4, 0.4]), slopes, np.array([0.1, 0.09]))
    assert found == pytest.approx([0.2, 0.1, 0.4])  # 0.1 / 0.5, 0.09 / 0.9, and a constant without an effect


def test_values_that_contradict_have_a_reason(tmp_path, llama):
    first = estimate(llama, **OPTIONS)
    tpot = first.tpot_ms.value
    good = [f"{llama},inf2.xlarge,2,4,256,{tpot * factor}" for factor in (0.98, 1.0, 1.02, 1.01)]
    twice = calibrate([table(tmp_path, "tpot_ms", *good, f"{llama},inf2.xlarge,2,4,256,{3 * tpot}")])
    assert [bool(value.contradicted) for value in twice.values] == [False] * 4 + [True]
    assert "row 1" in twice.values[-1].contradicted


@pytest.mark.parametrize(("factor", "reason"), [(4, "of all of them"), (1 / 4, "of one")])
def test_rate_of_a_whole_batch_or_of_one_row_is_guessed(tmp_path, llama, factor, reason):
    lengths = (128, 256, 384, 512, 640)
    rates = [estimate(llama, **{**OPTIONS, "sequence_length": length}).tokens_per_s.value for length in lengths]
    rates[-1] *= factor
    rows = [f"{llama},inf2.xlarge,2,4,{length},{rate}" for length, rate in zip(lengths, rates, strict=True)]
    found = calibrate([table(tmp_path, "tokens_per_s", *rows)])
    assert [bool(value.contradicted) for value in found.values] == [False] * 4 + [True]
    assert "batch_size is 4" in found.values[-1].contradicted and reason in found.values[-1].contradicted


def test_value_below_documented_peaks_contradicts(tmp_path):
    LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16).save_pretrained(tmp_path / "large")
    large = str(tmp_path / "large")
    first = estimate(large, **OPTIONS)
    tpot, bound = first.tpot_ms.value, first.bounds["decode"]
    rows = [
        f"{large},inf2.xlarge,2,4,{length},{value}" for length, value in ((256, tpot), (256, tpot), (512, 0.9 * bound))
    ]
    found = calibrate([table(tmp_path, "tpot_ms", *rows)])
    assert [bool(value.contradicted) for value in found.values] == [False, False, True]
    assert "peaks" in found.values[-1].contradicted


def test_wrong_units_are_errors(tmp_path, llama):
    first = estimate(llama, **OPTIONS).tpot_ms.value
    with raises(ConfigError, option="tpot_ms", factor=1e-3):
        calibrate([table(tmp_path, "tpot_ms", f"{llama},inf2.xlarge,2,4,256,{first / 1000}")])
    with raises(ConfigError, option="tpot_ms", factor=1e3):
        calibrate([table(tmp_path, "tpot_ms", f"{llama},inf2.xlarge,2,4,256,{first * 1000}")])
    with raises(ConfigError, origin=f"{tmp_path / 'measured.csv'}, row 1"):
        calibrate([table(tmp_path, "tpot_ms", f"{llama},inf3.xlarge,2,4,256,{first}")])
    with raises(ConfigError, option="device_ms", graphs=list(estimate(llama, **OPTIONS).device_ms)):
        compare_run(table(tmp_path, "device_ms", f"{llama},inf2.xlarge,2,4,256,1"))


def test_written_constants_are_used_and_checked(tmp_path, llama):
    first = estimate(llama, **OPTIONS)
    rows = [f"{llama},inf2.xlarge,2,4,256,{1.4 * first.tpot_ms.value}"] * 6
    found = calibrate([table(tmp_path, "tpot_ms", *rows)])
    path = tmp_path / "mine.json"
    found.write(path)
    assert read_constants(path) == found.constants
    (band,) = (band for band in found.constants.bands.values() if "measured" in band.basis)
    errors = np.log([value.measured / value.left_out for value in found.values])
    assert band.low < 1.0 < band.high and np.log(band.high / band.low) > 2.0 * errors.std()
    mine = estimate(llama, constants=path, **OPTIONS)
    assert mine.tpot_ms.value == pytest.approx(found.values[0].after)
    assert mine.tpot_ms.value > first.tpot_ms.value
    assert mine.tokens_per_s.value < first.tokens_per_s.value and "measured.csv" in str(mine.assumptions)
    best = compare(llama, constants=path, **{**OPTIONS, "instance": "inf2.xlarge"}).ranked[0]
    assert best.tpot_ms == mine.tpot_ms
    again = calibrate([table(tmp_path, "tpot_ms", *rows)], constants=path)
    assert again.values[0].before == pytest.approx(mine.tpot_ms.value) and len(again.constants.calibrated_on) == 2
    data = json.loads(path.read_text())
    for change in ({"format": 99}, {"copy_bytes_per_s": -1.0}, {"cores": {}}, {"typo": 1}, {"bands": 3}):
        path.write_text(json.dumps(data | change))
        with raises(ConfigError, option="constants"):
            estimate(llama, constants=path, **OPTIONS)
    with raises(ConfigError, option="constants"):
        estimate(llama, constants=tmp_path / "missing.json", **OPTIONS)


def test_files_of_servers_and_profiles_calibrate_together(write, llama):
    files = [write(VLLM_SERVE, "a.json"), write(GENAI_PERF, "b.json")]
    found = calibrate(files, model=llama, **OPTIONS)
    assert {value.prediction.band(value.metric) for value in found.values} == {
        f"served.{name}" for name in ("ttft_ms", "tpot_ms", "tokens_per_s")
    }
    assert found.constants.bands["served.ttft_ms"].num_rows == constants().bands["served.ttft_ms"].num_rows + 2
    (shown,) = compare_run(files[0], model=llama, constants=found.constants, **OPTIONS)
    assert {"ttft_ms", "tpot_ms", "throughput_per_s", "tokens_per_s"} == set(shown.phases)
    (profile,) = compare_run(write(PROFILE), model=llama, graph="decode", **OPTIONS)
    assert set(profile.engines) == {"tensor", "vector", "dma"} and profile.hbm_bytes[0] == 200_000
    plain = estimate(llama, **OPTIONS)
    (name,) = [graph for graph in plain.device_ms if graph.startswith("decode")]
    device_ms = plain.device_ms[name] - plain.parts_ms[name]["launch"]
    assert profile.phases["decode_ms"][1].value == pytest.approx(device_ms)
    data = profile.to_dict()["engines"]["dma"]
    assert data["error"] == pytest.approx(data["predicted"] / data["measured"] - 1)
    alone = calibrate(
        [write({**PROFILE["summary"][0], "total_time": 0.9e-3 * device_ms})], model=llama, graph="decode", **OPTIONS
    )
    assert [value.metric for value in alone.values] == ["decode_ms"] and alone.constants.scale == {}
    open_load = write({**VLLM_SERVE, "max_concurrency": None, "request_rate": 4.0})
    (arriving,) = compare_run(open_load, model=llama, **OPTIONS)
    served = estimate(llama, requests_per_s=4.0, input_length=96, output_length=32, **OPTIONS).load.served
    for metric, name in (("ttft_ms", "ttft_mean_ms"), ("tpot_ms", "tpot_mean_ms")):
        assert arriving.phases[metric][1] == served[name]


def test_spread_is_of_every_constant():
    values = constants()
    assert set(values.spread) == set(flat(values)) and values.scale == {}
    assert all(0.1 <= spread < 0.6 for spread in values.spread.values())  # releases move a constant by a tenth
    assert dataclasses.replace(values, scale={"decoder.tpot_ms": 2.0}) != values


def test_single_pass_model_has_a_latency_and_no_tokens(tmp_path):
    folder = tmp_path / "bert"
    config = BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(folder)
    options = {"instance": "inf2.xlarge", "batch_size": 4, "sequence_length": 128}
    first = estimate(folder, **options)
    for metric in ("latency_ms", "device_ms"):
        value = 1.3 * first.quantities["latency_ms"].value
        found = calibrate([table(tmp_path, metric, f"{folder},inf2.xlarge,1,4,128,{value}")])
        assert found.values[0].before < found.values[0].after < value
        assert list(found.constants.scale) == (["encoder.latency_ms"] if metric == "latency_ms" else [])
    with raises(ConfigError, option="tpot_ms"):
        calibrate([table(tmp_path, "tpot_ms", f"{folder},inf2.xlarge,1,4,128,3")])
