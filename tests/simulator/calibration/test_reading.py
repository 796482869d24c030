"""Files of other projects become runs with the options of an estimate, and slips are errors that name the cell."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.simulator.calibration.reading import read_measurements
from tests.raising import raises
from tests.simulator.calibration.conftest import (
    GENAI_PERF,
    LLMPERF,
    OPTIONS,
    PROFILE,
    VLLM_LATENCY,
    VLLM_SERVE,
    VLLM_THROUGHPUT,
    report,
)

LOAD = {"num_clients": 2, "input_length": 96, "output_length": 32, "data_parallel_size": 1}
LENGTHS = {"input_length": 96, "output_length": 32}


@pytest.mark.parametrize(
    ("data", "more", "own", "values"),
    [
        (
            VLLM_SERVE,
            {},
            LOAD | {"num_requests": 32},
            {"ttft_ms": 14.0, "tpot_ms": 2.5, "throughput_per_s": 20.0, "tokens_per_s": 640.0},
        ),
        (VLLM_LATENCY, LENGTHS, {"data_parallel_size": 1}, {"latency_ms": 90.0}),
        (VLLM_THROUGHPUT, LENGTHS, {"data_parallel_size": 1}, {"throughput_per_s": 40.0}),
        (
            GENAI_PERF,
            {},
            LOAD,
            {"ttft_ms": 14.0, "tpot_ms": 2.5, "latency_ms": 95.0, "throughput_per_s": 20.0, "tokens_per_s": 640.0},
        ),
        # 31 tokens behind the first one: LLMPerf's own value, 2.85 ms, includes it.
        (LLMPERF, {}, LOAD, {"ttft_ms": 14.0, "tpot_ms": 2.5, "latency_ms": 91.5, "tokens_per_s": 640.0}),
    ],
    ids=["vllm serve", "vllm latency", "vllm throughput", "genai-perf", "llmperf"],
)
def test_results_of_servers(write, data, more, own, values):
    (run,) = read_measurements(write(data), model="llama", options={**OPTIONS, **more})
    assert run.model == "llama" and run.options == {**OPTIONS, **more, **own}
    assert run.values == pytest.approx(values)


def test_first_releases_of_genai_perf_have_options_in_one_group(write):
    old = {**GENAI_PERF, "input_config": {"model": ["llama"], "concurrency": 2, "request_rate": None}}
    (run,), (new,) = (read_measurements(write(data), options=OPTIONS) for data in (old, GENAI_PERF))
    assert (run.options, run.values) == (new.options, new.values)
    # Without --streaming the first token is the whole answer, and there are no gaps.
    whole = {**old, "time_to_first_token": old["request_latency"], "inter_token_latency": {"unit": "ms", "avg": 0.0}}
    (run,) = read_measurements(write(whole), options=OPTIONS)
    assert run.values == {name: value for name, value in new.values.items() if name not in ("ttft_ms", "tpot_ms")}


def test_appended_results_are_several_runs(write):
    runs = read_measurements(write([VLLM_SERVE, {**VLLM_SERVE, "max_concurrency": 4}]), options=OPTIONS)
    assert [run.options["num_clients"] for run in runs] == [2, 4]


def test_profile_and_monitor_are_of_one_graph(write):
    (profile,) = read_measurements(write(PROFILE), model="llama", options=OPTIONS, graph="decode")
    assert profile.values == {"decode_ms": 0.5} and profile.hbm_bytes == 200_000
    assert profile.engines == pytest.approx({"tensor": 0.07, "vector": 0.15, "dma": 0.4})
    reports = [report(0.001, 10), report(0.004, 25), report(0.009, 0), report(0.002, 4)]
    (monitor,) = read_measurements(write(reports), model="llama", options=OPTIONS, graph="decode")
    assert monitor.values == {"decode_ms": 4.0}  # of 39 executions, 25
    for data in (PROFILE, [report(0.001, 10)]):
        with raises(ConfigError, option="graph"):
            read_measurements(write(data), model="llama", options=OPTIONS)
    with raises(ConfigError, option="graph"):
        read_measurements(write(VLLM_SERVE), options=OPTIONS, graph="decode")


TABLE = "model,instance,batch_size,sequence_length,ttft_s,tpot_ms\n"


def test_table_has_units_in_its_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"{TABLE}llama,inf2.xlarge,1,256,0.014,2.5\nllama,inf2.xlarge,4,256,,3.5\n")
    first, second = read_measurements(path)
    assert first.values == {"ttft_ms": 14.0, "tpot_ms": 2.5} and second.values == {"tpot_ms": 3.5}
    assert second.options == {"instance": "inf2.xlarge", "batch_size": 4, "sequence_length": 256}
    assert [run.origin for run in (first, second)] == [f"{path}, row 1", f"{path}, row 2"]


@pytest.mark.parametrize(
    ("header", "row", "details"),
    [
        (
            "model,instance,batch_size,sequnce_length,ttft_ms",
            "llama,inf2.xlarge,1,256,14",
            {"columns": ["sequnce_length"]},
        ),
        ("model,instance,batch_size,ttft", "llama,inf2.xlarge,1,14", {"columns": ["ttft"]}),
        ("model,instance,batch_size", "llama,inf2.xlarge,1", {"columns": []}),
        ("model,instance,batch_size,ttft_ms", "llama,inf2.xlarge,1,-14", {"option": "ttft_ms", "value": -14.0}),
        ("model,instance,batch_size,ttft_ms", "llama,inf2.xlarge,1,nan", {"option": "ttft_ms"}),
        ("model,instance,batch_size,ttft_ms", "llama,inf2.xlarge,1,14 ms", {"option": "ttft_ms", "value": "14 ms"}),
        ("model,instance,batch_size,ttft_ms", "llama,inf2.xlarge,,14", {"option": "batch_size", "value": None}),
        ("model,instance,batch_size,ttft_ms", ",inf2.xlarge,1,14", {"option": "model"}),
        ("model,instance,batch_size,ttft_ms,ttft_s", "llama,inf2.xlarge,1,14,0.014", {"option": "ttft_ms"}),
        ("model,batch_size,ttft_ms,price", "llama,1,14,2", {"columns": ["price"]}),
    ],
)
def test_slips_of_a_table(tmp_path, header, row, details):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n")
    with raises(ConfigError, **details):
        read_measurements(path)


def test_all_rows_with_slips_are_in_one_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"{TABLE}llama,inf2.xlarge,1,256,0.014,-1\nllama,inf2.xlarge,,256,,3.5\nllama,inf2.xlarge,1\n")
    with pytest.raises(ConfigError) as error:
        read_measurements(path)
    assert len(error.value.details["problems"]) == 3


@pytest.mark.parametrize("text", ["", "[]", "{", "[1]", '{"throughput": 3}', "a,b\n1,2"])
def test_unknown_formats(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with raises(ConfigError, option="file", value=str(path)):
        read_measurements(path, model="llama", options=OPTIONS)


def test_load_that_no_estimate_has(write):
    with raises(ConfigError, option="max_concurrency"):
        read_measurements(write({**VLLM_SERVE, "max_concurrency": None}), options=OPTIONS)
    with raises(ConfigError, option="completed", value=0):
        read_measurements(write({**VLLM_SERVE, "completed": 0}), options=OPTIONS)
    with raises(ConfigError, option="input_length", value=96):
        read_measurements(write(VLLM_SERVE), options={**OPTIONS, "input_length": 64})
    with raises(ConfigError, option="batch_size"):
        read_measurements(write(VLLM_SERVE), options={"instance": "inf2.xlarge"})


def test_load_that_arrives_at_a_rate_decides_the_rate_of_answers(write):
    stimulus = {"perf_analyzer": {"stimulus": {"request_rate": 4.0}}}
    serve = {**VLLM_SERVE, "max_concurrency": None, "request_rate": 4.0}
    for data in (serve, {**GENAI_PERF, "input_config": {"model_names": ["llama"], **stimulus}}):
        (run,) = read_measurements(write(data), options=OPTIONS)
        assert run.options["requests_per_s"] == 4.0 and not {"num_clients", "num_requests"} & run.options.keys()
        assert run.values.items() >= {"ttft_ms": 14.0, "tpot_ms": 2.5}.items()
        assert not {"throughput_per_s", "tokens_per_s"} & run.values.keys()


def test_llmperf_without_a_time_to_first_token_has_no_time_per_token(write):
    kept = ("results_ttft_s_mean", "results_mean_output_throughput_token_per_s")
    (run,) = read_measurements(write({k: v for k, v in LLMPERF.items() if k not in kept}), options=OPTIONS)
    assert run.values == {"latency_ms": 91.5}


def test_profile_of_neuron_explorer_has_a_name_around_it(write):
    (summary,) = PROFILE["summary"]
    for layout in ({"summary": {"model_rank_0": summary}}, {"model_rank_0": summary}, summary):
        (run,) = read_measurements(write(layout), model="llama", options=OPTIONS, graph="decode")
        assert run.values == {"decode_ms": 0.5} and run.hbm_bytes == 200_000


@pytest.mark.parametrize(
    ("data", "given", "details"),
    [
        (VLLM_LATENCY, {"model": "llama"}, {"option": "output_length"}),
        (VLLM_LATENCY, {}, {"option": "output_length"}),
        ({**VLLM_SERVE, "model_id": None}, {}, {"option": "model"}),
        (
            {**GENAI_PERF, "request_latency": {"unit": "min", "avg": 1}},
            {},
            {"option": "request_latency", "value": "min"},
        ),
        ({"summary": [{"total_times": 1}]}, {"model": "llama", "graph": "decode"}, {"option": "total_time"}),
        (PROFILE, {"graph": "decode"}, {"option": "model"}),
        ([report(0.001, 0)], {"model": "llama", "graph": "decode"}, {"option": "execution_stats"}),
        (VLLM_SERVE, {"options": {**OPTIONS, "price": 2.0}}, {"options": ["price"]}),
    ],
)
def test_files_that_lack_what_an_estimate_needs(write, data, given, details):
    with raises(ConfigError, **details):
        read_measurements(write(data), **{"options": OPTIONS, **given})


def test_files_without_values(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"{TABLE}llama,inf2.xlarge,1,256,,\n")
    for wrong in (path, tmp_path / "missing.csv"):
        with raises(ConfigError, option="file", value=str(wrong)):
            read_measurements(wrong)
