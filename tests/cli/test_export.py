import json
import types

import pytest

from optimum_neuron.errors import UnsupportedOperatorError

REPORT = {
    "model": "acme/tiny",
    "task": "text-generation",
    "family": {"value": "llama", "reason": "model_type llama, every option covered", "rejected": []},
    "target": {"value": "inf2", "reason": "the default", "rejected": []},
    "cache": {"value": "miss", "reason": "no entry for this model"},
    "host_code": {"value": "inductor", "reason": "-O2: fused kernels by g++ 12"},
    "graphs": [{"name": "prefill_64", "num_subprograms": 3}, {"name": "decode", "num_subprograms": 3}],
    "validation": [
        {"output": "logits", "max_abs_error": 0.0123456, "sqnr_db": float("inf"), "tolerance": 0.02, "ok": True}
    ],
    "timings_s": {"capture": 1.25, "lower": 10.0},
    "output_dir": "out dir",
    "size_bytes": 3 * 2**20,
    "simulated": True,
}


@pytest.fixture
def export(cli, fake_module):
    """Run the command; `export.options` records the arguments of the Python API."""

    def run(*words, report=REPORT, error=None):
        def main_export(**options):
            run.options = options
            if error is not None:
                raise error
            return types.SimpleNamespace(to_dict=lambda: report)

        fake_module("optimum_neuron.exporters", main_export=main_export)
        return cli("export", "neuron", *words)

    return run


def test_omitted_options_use_python_defaults_and_zero_tolerance_is_kept(export):
    assert export("-m", "acme/tiny", "out").code == 0
    assert export.options == {"model_name_or_path": "acme/tiny", "output": "out"}
    export("-m", "x", "out", "--atol", "0")
    assert export.options["atol"] == 0.0


def test_every_option_reaches_python_api(export):
    words = """--model acme/tiny out --task text-generation --batch_size 2 --sequence_length 128 --prefill_buckets 32,64
    --instance_type inf2.xlarge --auto_cast matmul --auto_cast_type fp8_e4m3 -O3 --torch_dtype bfloat16
    --inline-weights-neff --disable-validation --atol 0.01 --trust-remote-code --subfolder s --revision r
    --cache_dir hub --disable_neuron_cache --json"""
    assert export(*words.split()).code == 0
    assert export.options == {
        "model_name_or_path": "acme/tiny", "output": "out", "task": "text-generation", "batch_size": 2,
        "sequence_length": 128, "prefill_buckets": (32, 64), "instance_type": "inf2.xlarge", "auto_cast": "matmul",
        "auto_cast_type": "fp8_e4m3", "optlevel": "3", "torch_dtype": "bfloat16", "inline_weights_to_neff": True,
        "disable_validation": True, "atol": 0.01, "trust_remote_code": True, "subfolder": "s", "revision": "r",
        "cache_dir": "hub", "disable_neuron_cache": True,
    }  # fmt: skip


def test_human_summary(export):
    result = export("-m", "acme/tiny", "out dir")
    assert result.stdout.splitlines()[0] == "exported acme/tiny to out dir (3.0 MiB), simulated"
    for line in (
        "family     llama            model_type llama, every option covered",
        "cache      miss             no entry for this model",
        "prefill_64                3",
        "seconds on this host: capture=1.25, lower=10",
    ):
        assert line in result.stdout.splitlines()
    assert "0.01235" in result.stdout and "logits" in result.stdout


def test_stages_memory_and_quality_are_shown(export):
    more = {
        "hbm_bytes": {"weights": 2 * 2**30},
        "stages": [{"stage": 0, "layers": "0-1", "hbm_bytes": 2**30}],
        "fits_one_core": False,
        "num_cores": {"value": 2, "reason": "asked for"},
        "quality": {"num_tokens": 512, "top1_agreement": 0.987, "perplexity": 8.126, "reference_perplexity": 8.0},
    }
    result = export("-m", "acme/tiny", "out", "--allow_missing_weights", report={**REPORT, **more})
    assert "does not fit 2 cores" in result.stderr
    for text in ("2.0 GiB", "1.0 GiB", "0-1", "512 tokens", "98.7%", "perplexity 8.13 (original 8.00)"):
        assert text in result.stdout, text


def test_next_step_names_output_folder(export):
    result = export("-m", "acme/tiny", "out dir")
    assert "next: optimum-cli neuron inspect 'out dir'" in result.stderr
    assert "print(pipeline('text-generation', 'out dir')('Hello'))" in result.stderr
    result = export("-m", "acme/tiny", "out", report={**REPORT, "task": {"value": "fill-mask", "reason": "its config"}})
    assert "inspect out" in result.stderr and "pipeline" not in result.stderr


def test_json_holds_whole_report_and_quiet_prints_folder(export):
    result = export("-m", "acme/tiny", "out", "--json")
    assert result.json == json.loads(json.dumps(REPORT).replace("Infinity", '"inf"')) and result.stderr == ""
    assert export("-m", "acme/tiny", "out", "--quiet").stdout == "out\n"


def test_report_with_missing_keys_is_shown(export):
    result = export("-m", "acme/tiny", "out", report={"model": "acme/tiny", "output_dir": "out"})
    assert result.code == 0 and "not compared with the reference model" in result.stdout


def test_error_names_all_operators_and_next_command(export):
    error = UnsupportedOperatorError("2 operators\n  aten.sort\n  aten.topk", operators=["aten.sort", "aten.topk"])
    result = export("-m", "acme/tiny", "out", error=error)
    assert (result.code, result.stdout) == (1, "")
    assert "aten.sort" in result.stderr and "aten.topk" in result.stderr and "Traceback" not in result.stderr
    result = export("-m", "acme/tiny", "out", "--json", error=error)
    assert result.json["error"]["details"] == {"operators": ["aten.sort", "aten.topk"]}


def test_options_of_optimum_neuron_reach_python_api(export):
    words = """-m acme/tiny out --num_cores 1 --num_beams 4 --patch_size 16 --disable-fast-relayout --disable-fallback
    --disable-neuron-cache --dtype bfloat16 --compiler_workdir work --unet u --lora_model_ids a b
    --controlnet_ids c --ip_adapter_ids i --data_parallel_mode unet"""
    assert export(*words.split()).code == 0
    assert export.options == {
        "model_name_or_path": "acme/tiny", "output": "out", "tensor_parallel_size": 1, "num_beams": 4,
        "patch_size": 16, "disable_fast_relayout": True, "disable_fallback": True, "disable_neuron_cache": True,
        "torch_dtype": "bfloat16", "compiler_workdir": "work", "lora_model_ids": ["a", "b"], "unet": "u",
        "controlnet_ids": ["c"], "ip_adapter_id": ["i"], "data_parallel_mode": "unet",
    }  # fmt: skip


def test_options_of_diffusion_pipelines_are_error(cli, checkpoint, tmp_path):
    words = ("-m", str(checkpoint), "--controlnet_ids", "a", "--json", str(tmp_path / "out"))
    result = cli("export", "neuron", *words)
    assert result.code == 1 and result.json["error"]["type"] == "ModelError"
    assert result.json["error"]["details"] == {"options": ["controlnet_ids"]}
    assert cli("export", "neuron", "-m", str(checkpoint), "--num_cores", "3", str(tmp_path / "out")).code == 1
    assert not (tmp_path / "out").exists()
