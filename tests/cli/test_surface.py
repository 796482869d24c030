"""The commands and options cannot change by accident, and asking for help stays light."""

import subprocess
import sys

import pytest
from optimum.commands.base import RootOptimumCLICommand
from optimum.commands.export.base import ExportCommand
from optimum.commands.optimum_cli import register_optimum_cli_subcommand

from optimum_neuron.cli import NeuronCommand, NeuronExportCommand

GRAPHS = [
    "--auto_cast", "--auto_cast_type", "--batch_size", "--cache_dir", "--instance_type",
    "--decode_buckets", "--decoder_sequence_length", "--prefill_buckets", "--revision", "--sequence_length",
    "--subfolder", "--task", "--torch_dtype", "--dtype", "--trust-remote-code", "--audio_sequence_length",
    "--dynamic-batch-size", "--feature_size", "--image_size", "--max_num_images",
    "--max_num_audios", "--audio_batch_size",
    "--height", "--image_batch_size", "--nb_max_frames", "--num_beams", "--num_channels", "--num_choices",
    "--output_attentions", "--output_hidden_states", "--text_batch_size", "--width",
    "--tensor_parallel_size", "--num_cores", "--pipeline_parallel_size", "--sequence_parallel",
    "--sequence_parallel_enabled", "--speculation", "--max_loras", "--max_lora_rank", "--lora_target_modules",
    "--on_device_sampling", "--max_topk", "--hidden_state_layers", "--gguf_file",
    "--continuous_batching", "--block_size", "--num_blocks", "--prefill_chunk_size",
    "--quantization", "--modules_to_not_convert", "--kv_cache_dtype", "--attention_kernel",
    "--num_images_per_prompt", "--num_frames", "--guidance_scale", "--data_parallel_mode",
    "--attention_slicing", "--vae_tiling", "--vae_slicing",
]  # fmt: skip
COMPILE = [*GRAPHS, "--allow_host_ops", "--inline-weights-neff", "-O1", "-O2", "-O3"]
PEER = [
    "--patch_size", "--disable-fast-relayout",
    "--disable-fallback", "--vae_scale_factor", "--unet", "--controlnet_id",
    "--ip_adapter_ids", "--ip_adapter_subfolders", "--ip_adapter_weight_names", "--ip_adapter_scales",
    "--controlnet_ids", "--lora_model_ids",
    "--lora_weight_names", "--lora_adapter_names", "--lora_scales", "--ip_adapter_id", "--ip_adapter_subfolder",
    "--ip_adapter_weight_name", "--ip_adapter_scale",
]  # fmt: skip
CACHE = ["--repo_id", "--url"]
PRUNE = [
    "--all", "--cache_dir", "--dry-run", "--keep_incomplete", "--max_size_bytes", "--old-versions",
    "--older_than_days", "--wipe",
]  # fmt: skip
OUTPUT = ["--help", "--json", "--quiet", "-h"]

ESTIMATE = [
    *("--audio_sequence_length", "--auto_cast", "--batch", "--batch_size", "--cache_dir", "--constants"),
    *("--concurrency", "--data_parallel_mode", "--data_parallel_size", "--dtype", "--guidance_scale", "--height"),
    *("--feature_size", "--image_size", "--instance", "--nb_max_frames", "--num_channels", "--num_choices"),
    *("--num_clients", "--num_inference_steps", "--num_requests", "--output_length", "--price", "--requests_per_s"),
    *("--revision", "--sdk", "--sequence_length", "--stack", "--subfolder", "--task"),
    *("--tensor_parallel_size", "--trust-remote-code", "--width"),
    *("--batches_in_flight", "--image_batch_size", "--input_length", "--prefix_hit_rate", "--text_batch_size"),
    *("--acceptance_rate", "--draft_model", "--draft_parameters", "--num_speculative_tokens"),
    *("--speculation_length", "--block_size", "--continuous_batching", "--decode_buckets", "--lora_target_modules"),
    *("--max_lora_rank", "--max_loras", "--modules_to_not_convert", "--num_blocks", "--prefill_buckets"),
    *("--prefill_chunk_size", "--quantization", "--sequence_parallel", "--sequence_parallel_enabled"),
    *("--gguf_file", "--hidden_state_layers", "--kv_cache_dtype", "--attention_kernel"),
    *("--max_topk", "--on_device_sampling", "--refiner_model", "--denoising_end"),
    *("--pipeline_parallel_size", "--neuroncore-pipeline-cores"),
]  # fmt: skip

SURFACE = {
    "export": [
        *(*COMPILE, *PEER, *OUTPUT, "--adapter", "--allow_missing_weights", "--atol", "--compiler_workdir"),
        *("--disable-validation", "--no-allow_missing_weights", "--precompile"),
        "--disable_neuron_cache",
        *("--model", "-m", "OUTPUT"),
    ],
    "breakeven": [
        *OUTPUT,
        *("--day-rate", "--engineer-days", "--gpu-hours-per-run", "--gpu-price", "--gpu-throughput"),
        *("--hours-per-run", "--inferences-per-month", "--instance", "--price", "--runs-per-month", "--throughput"),
    ],
    "budget": [*OUTPUT, "--junit", "--markdown", "--record", "FILE"],
    "buckets suggest": [*OUTPUT, "--column", "--dataset", "--html", "--max", "--multiple_of", "--tokenizer"],
    "check": [*GRAPHS, *OUTPUT, "--all_graphs", "--allow_host_ops", "--fail-on", "--from", "--html", "--to", "MODEL"],
    "consolidate": [*OUTPUT, "--config", "--format", "-f", "CHECKPOINT", "OUTPUT"],
    "demo": [*OUTPUT, "--max_new_tokens", "--prompt", "--wait-for-host-code"],
    "doctor": OUTPUT,
    "calibrate": [*OUTPUT, *ESTIMATE, "--graph", "--model", "--output", "-o", "FILE"],
    "compare-run": [*OUTPUT, *ESTIMATE, "--graph", "FILE", "MODEL"],
    "estimate": [*OUTPUT, *ESTIMATE, "--compare", "--html", "--optimize", "MODEL_OR_DIR"],
    "estimate-training": [
        *OUTPUT,
        *("--batch_size", "--config", "--html", "--instance", "--micro_batch_size", "--no_gradient_checkpointing"),
        "--no_zero_1",
        *("--num_instances", "--pipeline_parallel_size", "--price", "--sequence_length"),
        *("--tensor_parallel_size", "--trust-remote-code", "MODEL"),
    ],
    "fetch": [*OUTPUT, "NAME", "--list"],
    "inspect": [*OUTPUT, "DIR"],
    "models": [*OUTPUT, "--task"],
    "nki": [
        *OUTPUT,
        *("--against", "--grid", "--html", "--perfetto", "--platform_rules", "--seconds", "--tune"),
        *("ARGUMENT", "FILE:KERNEL"),
    ],
    "profile": [
        *OUTPUT,
        *(
            "--constants",
            "--html",
            "--num_steps",
            "--perfetto",
            "--prompt_length",
            "--top",
            "ARGUMENT",
            "DIR_OR_SCRIPT",
        ),
    ],
    "serve": [
        *(*COMPILE, *OUTPUT, "--host", "--port", "--served_model_name", "--lora_modules"),
        *("--api_key", "--max_queue_size", "--max_body_bytes", "--request_timeout_s"),
        *("--drain_timeout_s", "--response_store_bytes", "--max_connections", "--allowed_origins", "MODEL"),
        "--disable-validation",
        *("--simulate", "--sweep", "--slo", "--slo_attainment", "--num_prompts", "--input_length"),
        *("--output_length", "--request_rate", "--seed", "--price", "--constants", "--html"),
        *("--ray", "--ray_address", "--num_replicas"),
        *("--max_replicas", "--model", "-m", "--max_model_len", "--max_num_seqs", "--data-parallel-size"),
        "--allow_non_cached_model",
    ],
    "studio": [*OUTPUT, "--folder", "--port"],
    "train": [*OUTPUT, "--config"],
    "cache add": [*COMPILE, *PEER, *CACHE, *OUTPUT, "--model", "-m"],
    "cache cleanup": [*PRUNE, *CACHE, *OUTPUT],
    "cache create": [*OUTPUT, "--name", "--public", "-n"],
    "cache explain": [*COMPILE, *PEER, *CACHE, *OUTPUT, "MODEL"],
    "cache list": [*CACHE, *OUTPUT, "--task", "--trust-remote-code", "MODEL"],
    "cache lookup": [*COMPILE, *PEER, *CACHE, *OUTPUT, "MODEL"],
    "cache prune": [*PRUNE, *CACHE, *OUTPUT],
    "cache set": [*OUTPUT, "NAME"],
    "cache status": [*CACHE, *OUTPUT, "--cache_dir"],
    "cache synchronize": [*CACHE, *OUTPUT, "--cache_dir", "--dry-run"],
    "cache warm": [*CACHE, *OUTPUT, "--num_workers", "--ray_address", "CONFIG"],
}


def leaves(command, path=()):
    if not command.registered_subcommands:
        return {" ".join(path): command}
    return {
        name: leaf
        for child in command.registered_subcommands
        for name, leaf in leaves(child, (*path, child.COMMAND.name)).items()
    }


@pytest.fixture
def commands():
    root = RootOptimumCLICommand("Optimum CLI tool", usage="optimum-cli")
    export = ExportCommand(root.subparsers)
    register_optimum_cli_subcommand(NeuronExportCommand, parent_command=export)
    found = {**leaves(NeuronCommand(root.subparsers)), "export": export.registered_subcommands[0]}
    for command in found.values():
        command.parser.declared()
    return found


def test_surface_is_pinned(commands):
    result = {
        name: sorted(
            option for action in command.parser._actions for option in action.option_strings or [action.metavar]
        )
        for name, command in commands.items()
    }
    assert result == {name: sorted(options) for name, options in SURFACE.items()}


def test_every_option_and_command_has_help_text(commands):
    for command in commands.values():
        assert command.parser.description
        assert all(action.help for action in command.parser._actions)


def test_defaults_are_left_to_python_api(commands):
    for command in commands.values():
        options = [action for action in command.parser._actions if action.dest not in ("help", "func")]
        assert {action.default for action in options} <= {None, False}


@pytest.mark.parametrize("words", [["export", "neuron", "--help"], ["neuron"], ["neuron", "cache", "lookup", "--help"]])
def test_help_imports_nothing_heavy(words):
    program = f"""
import sys
from optimum.commands.optimum_cli import main
sys.argv = ["optimum-cli", *{words!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = ["torch", "transformers", "numpy", "huggingface_hub", "fsspec", "psutil", "rich", "packaging.requirements"]
print("heavy:", [name for name in heavy if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: optimum-cli ")
    assert result.stdout.splitlines()[-1] == "heavy: []"


def test_no_init_file_above_registration(request):
    folder = request.config.rootpath / "optimum"
    assert (folder / "commands" / "register" / "register_optimum_neuron.py").is_file()
    assert list(folder.rglob("__init__.py")) == []
