"""A small decoder, and benchmark results of it in the layouts that other projects write."""

from __future__ import annotations

import json

import pytest

from tests.tiny import tiny_config

OPTIONS = {"instance": "inf2.xlarge", "tensor_parallel_size": 2, "batch_size": 4, "sequence_length": 256}

VLLM_SERVE = {
    "date": "20260301-101500",
    "backend": "vllm",
    "model_id": "llama",
    "num_prompts": 32,
    "request_rate": "inf",
    "max_concurrency": 2,
    "duration": 40.0,
    "completed": 32,
    "failed": 0,
    "total_input_tokens": 32 * 96,
    "total_output_tokens": 32 * 32,
    "request_throughput": 20.0,
    "output_throughput": 640.0,
    "mean_ttft_ms": 14.0,
    "median_ttft_ms": 13.5,
    "mean_tpot_ms": 2.5,
    "median_tpot_ms": 2.4,
    "p99_tpot_ms": 3.5,
}
"""As `vllm bench serve --save-result` of vLLM 0.33 (vllm/benchmarks/serve.py)."""
VLLM_LATENCY = {"avg_latency": 0.09, "std_latency": 0.001, "latencies": [0.089, 0.091], "percentiles": {"50": 0.09}}
"""As `vllm bench latency --output-json` (vllm/benchmarks/latency.py)."""
VLLM_THROUGHPUT = {
    "model_id": "llama",
    "elapsed_time": 8.0,
    "num_requests": 320,
    "total_num_tokens": 40960,
    "requests_per_second": 40.0,
    "tokens_per_second": 5120.0,
}
"""As `vllm bench throughput --output-json` (vllm/benchmarks/throughput.py)."""
GENAI_PERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 20.0},
    "request_latency": {"unit": "ms", "avg": 95.0, "p50": 94.0},
    "time_to_first_token": {"unit": "ms", "avg": 14.0, "p50": 13.5},
    "inter_token_latency": {"unit": "ms", "avg": 2.5, "p50": 2.4},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 640.0},
    "input_sequence_length": {"unit": "tokens", "avg": 96.2},
    "output_sequence_length": {"unit": "tokens", "avg": 31.9},
    "input_config": {"model_names": ["llama"], "perf_analyzer": {"stimulus": {"concurrency": 2}}},
}
"""As genai-perf's `profile_export_genai_perf.json` (export_data/json_exporter.py)."""
LLMPERF = {
    "version": "2023-08-31",
    "name": "llama_96_32_summary",
    "model": "llama",
    "mean_input_tokens": 96,
    "mean_output_tokens": 32,
    "num_concurrent_requests": 2,
    "results_inter_token_latency_s_mean": 0.00285,
    "results_ttft_s_mean": 0.014,
    "results_end_to_end_latency_s_mean": 0.0915,
    "results_number_input_tokens_mean": 96.0,
    "results_number_output_tokens_mean": 32.0,
    "results_mean_output_throughput_token_per_s": 640.0,
}
"""As LLMPerf's `_summary.json` (token_benchmark_ray.py, flattened by llmperf/utils.py)."""
PROFILE = {
    "summary": [
        {
            "total_time": 0.0005,
            "hbm_read_bytes": 200_000,
            "tensor_engine_active_time_percent": 14.0,
            "vector_engine_active_time_percent": 20.0,
            "scalar_engine_active_time_percent": 30.0,
            "dma_active_time_percent": 80.0,
        }
    ]
}
"""As `neuron-profile view --output-format summary-json` (profile schema reference of the Neuron SDK)."""


def report(p50_s: float, completed: int) -> dict:
    """A report of neuron-monitor with as many executions in its period."""
    stats = {
        "execution_summary": {"completed": completed, "completed_with_err": 0},
        "latency_stats": {"total_latency": {"p50": 2 * p50_s}, "device_latency": {"p50": p50_s}} if completed else {},
    }
    return {"neuron_runtime_data": [{"pid": 1, "report": {"execution_stats": stats}}], "system_data": {}}


@pytest.fixture
def llama(tmp_path, monkeypatch):
    """The folder `llama` of a checkpoint without weights, in the working directory."""
    monkeypatch.chdir(tmp_path)
    tiny_config("llama", architectures=["LlamaForCausalLM"], max_position_embeddings=4096).save_pretrained("llama")
    return "llama"


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a JSON file, and returns its path."""

    def write(data, name="result.json"):
        path = tmp_path / name
        lines = data if isinstance(data, list) else [data]
        path.write_text("\n".join(map(json.dumps, lines)))
        return path

    return write
