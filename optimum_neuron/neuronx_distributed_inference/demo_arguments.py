"""Arguments of the command `inference_demo`: most are keywords of `NeuronConfig`, with hyphens.

It does not know models: it gets the names of families.
"""

from __future__ import annotations

import argparse
import enum
import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .config import MoENeuronConfig, NeuronConfig
from .keywords import COMPUTED, DEFAULTS, DERIVED, OF_EXPERTS
from .parts import LoraServingConfig, OnDeviceSamplingConfig


class CheckAccuracyMode(enum.Enum):
    """What is compared with transformers."""

    SKIP_ACCURACY_CHECK = "skip-accuracy-check"
    TOKEN_MATCHING = "token-matching"
    LOGIT_MATCHING = "logit-matching"
    DRAFT_LOGIT_MATCHING = "draft-logit-matching"

    def __str__(self) -> str:
        return self.value


class StringOrIntegers(argparse.Action):
    """Values of an argument: whole numbers, or the word "auto" alone."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Keep the numbers, or the word."""
        words = [str(value).lower() for value in values]
        if words == ["auto"]:
            setattr(namespace, self.dest, "auto")
            return
        try:
            setattr(namespace, self.dest, [int(word) for word in words])
        except ValueError as error:
            message = f"{' '.join(words)!r} is neither 'auto' nor whole numbers."
            raise argparse.ArgumentTypeError(message) from error


_LISTS = ("context_encoding_buckets", "prefix_buckets", "token_generation_buckets", "token_generation_batches")
_OF_FILES = ("modules_to_not_convert", "draft_model_modules_to_not_convert", "lora_config", "medusa_tree")
_OBJECTS = ("on_device_sampling_config", "chunked_prefill_config", "token_tree_config", "kv_quant_config")
_NOT_FLAGS = (*_OF_FILES, *_OBJECTS, "tensor_capture_config", "tensor_replacement_config", "dma_order_config")
_RENAMED = {"is_block_kv_layout": "enable_block_kv_layout", "is_prefix_caching": "enable_prefix_caching"}
"""Keywords whose flag has another name."""
_LORA = ("max_loras", "max_lora_rank", "max_cpu_loras", "target_modules", "lora_ckpt_json")
_MODULES = "modules_to_not_convert"
_SAMPLING = ("do_sample", "top_k", "top_p", "temperature", "dynamic", "global_topk")
_SPELLED = {"start_rank_id": "--start_rank_id", "local_ranks_size": "--local_ranks_size"}
"""Keywords whose flag also has underscores."""
_WITHOUT_EFFECT = (
    *("hlo_debug", "enable_torch_dist", "top_k_kernel_enabled", "sampling_dp_degree", "capture_indices"),
    *("input_capture_save_dir", "k_quant_method", "v_quant_method", "kv_quant_dtype", "kv_direct_cast"),
)
"""Arguments that are no keywords of `NeuronConfig`, and do nothing here."""
_OF_CACHE = ("per_tensor_symmetric", "per_channel_symmetric", "per_key_symmetric")
_NUMBERS_OF_NONE = ("windowed_context_encoding_size", "quantization_block_size", "quantization_block_axis")
_INTS = (*DERIVED, "max_new_tokens", "world_size", "logical_nc_config", "scratchpad_page_size")


def parse_args(families: Iterable[str], words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        families: choices of `--model-type`.
        words: the arguments; None: those of the process.
    """
    parser = argparse.ArgumentParser(prog="inference_demo", description="Compile a language model and generate.")
    parser.add_argument("--model-type", choices=sorted(families), required=True)
    parser.add_argument("--task-type", choices=["causal-lm"], required=True)
    commands = parser.add_subparsers(required=True, dest="command")
    run = commands.add_parser("run", help="compile, load, check, generate, measure")
    _add_run(run)
    _add_keywords(run)
    args = parser.parse_args(words)
    if args.logical_neuron_cores is not None:
        warnings.warn("--logical-neuron-cores is deprecated: use --logical-nc-config.", UserWarning, stacklevel=2)
        args.logical_nc_config = args.logical_neuron_cores
    return args


def _add_run(run: argparse.ArgumentParser) -> None:
    """Add what is no keyword of `NeuronConfig`."""
    for name in ("model-path", "compiled-model-path"):
        run.add_argument(f"--{name}", required=True)
    run.add_argument("--prompt", dest="prompts", action="append", required=True, help="may be repeated")
    run.add_argument("--benchmark", action="store_true", help="measure latencies")
    run.add_argument("--benchmark-report-path", default="./benchmark_report.json")
    mode = CheckAccuracyMode
    run.add_argument("--check-accuracy-mode", type=mode, choices=list(mode), default=mode.SKIP_ACCURACY_CHECK)
    run.add_argument("--expected-outputs-path", help="file of torch.save with expected tokens or logits")
    run.add_argument("--divergence-difference-tol", type=float, default=0.001)
    run.add_argument("--tol-map", help="for example {None: (1e-5, 0.05), 5: (1e-5, 0.01)}")
    run.add_argument("--num-tokens-to-check", type=int)
    run.add_argument("--input-start-offsets", type=int, nargs="+")
    run.add_argument("--pad-token-id", type=int, default=0)
    for flag in ("skip-compile", "compile-only", "compile-dry-run"):
        run.add_argument(f"--{flag}", action="store_true")
    for flag in ("hlo-debug", "enable-torch-dist"):
        run.add_argument(f"--{flag}", action="store_true", default=None)
    run.add_argument("--on-device-sampling", action="store_true", help="decode steps pick tokens")
    run.add_argument("--top-k", type=int, default=1)
    run.add_argument("--top-p", type=float, default=1.0)
    run.add_argument("--temperature", type=float, default=1.0)
    run.add_argument("--global-topk", type=int)
    run.add_argument("--do-sample", action="store_true")
    run.add_argument("--dynamic", action="store_true")
    run.add_argument("--top-k-kernel-enabled", action=argparse.BooleanOptionalAction)
    run.add_argument("--sampling-dp-degree", type=int)
    for name in ("draft-model-path", "compiled-draft-model-path", "modules-to-not-convert-file"):
        run.add_argument(f"--{name}")
    run.add_argument("--draft-model-tp-degree", type=int)
    run.add_argument("--enable-lora", action="store_true")
    run.add_argument("--enable-dynamic-multi-lora", action="store_true")
    for name in ("max-loras", "max-lora-rank", "max-cpu-loras"):
        run.add_argument(f"--{name}", type=int)
    run.add_argument("--target-modules", nargs="+")
    run.add_argument("--lora-ckpt-path", dest="lora_ckpt_paths", action="append", help='"name : folder"')
    run.add_argument("--lora-ckpt-path-cpu", dest="lora_ckpt_paths_cpu", action="append")
    run.add_argument("--lora-ckpt-json")
    run.add_argument("--adapter-id", dest="adapter_ids", action="append", help="of each prompt")
    run.add_argument("--logical-neuron-cores", type=int, help=argparse.SUPPRESS)
    for name in ("k-quant-method", "v-quant-method"):
        run.add_argument(f"--{name}", choices=_OF_CACHE)
    run.add_argument("--kv-quant-dtype", choices=["float8_e4m3fn"])
    run.add_argument("--kv-direct-cast", action=argparse.BooleanOptionalAction)
    run.add_argument("--capture-indices", nargs="+", action=StringOrIntegers, help='"auto", or numbers of calls')
    run.add_argument("--input-capture-save-dir")
    run.add_argument("--medusa-tree-json", dest="medusa_tree", type=_json, help="file of a tree")
    run.add_argument("--token-tree-json", dest="token_tree_config", type=_json, help="file of a tree")


def _add_keywords(run: argparse.ArgumentParser) -> None:
    """Add a flag for each keyword; one that is not passed keeps its default."""
    defaults = {**DEFAULTS, **dict.fromkeys((*DERIVED, *COMPUTED)), **OF_EXPERTS}
    names = [name for name in defaults if name not in (*_NOT_FLAGS, "buckets", "overrides_torch_dtype")]
    for name in names:
        flag, default = f"--{_RENAMED.get(name, name).replace('_', '-')}", defaults[name]
        options: dict[str, Any] = {"dest": name, "default": None}
        if name in _SPELLED:
            run.add_argument(flag, _SPELLED[name], type=int, **options)
        elif name in _LISTS:
            run.add_argument(flag, nargs="+", type=int, **options)
        elif default is False:
            run.add_argument(flag, action="store_true", **options)
        elif isinstance(default, bool) or name.endswith("_enabled"):
            run.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif isinstance(default, (int, float)):
            run.add_argument(flag, type=type(default), **options)
        else:
            is_number = name in (*_INTS, *_NUMBERS_OF_NONE)
            run.add_argument(flag, type=int if is_number else float if name == "capacity_factor" else str, **options)
    run.add_argument("--disable-normalize-top-k-affinities", action="store_true", default=None)
    run.add_argument("--router-act-fn")
    run.add_argument("--router-dtype")
    run.add_argument("--enable-chunked-prefill", action="store_true")
    run.add_argument("--max-num-seqs", type=int)


def without_effect(args: argparse.Namespace) -> list[str]:
    """Return the flags that were passed and do nothing, beside those of `NeuronConfig`."""
    return [f"--{name.replace('_', '-')}" for name in _WITHOUT_EFFECT if getattr(args, name) is not None]


def neuron_keywords(args: argparse.Namespace, kind: type[NeuronConfig]) -> dict[str, Any]:
    """Return the keywords of `NeuronConfig` that arguments name."""
    of_experts = (*OF_EXPERTS, "disable_normalize_top_k_affinities", "router_act_fn", "router_dtype")
    names = [*DEFAULTS, *DERIVED, *COMPUTED, *(of_experts if issubclass(kind, MoENeuronConfig) else ())]
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    if args.on_device_sampling:
        values = {name: value for name in _SAMPLING if (value := getattr(args, name)) is not None}
        given["on_device_sampling_config"] = OnDeviceSamplingConfig(**values)
    if args.enable_lora or args.enable_dynamic_multi_lora:
        values = {name: value for name in _LORA if (value := getattr(args, name)) is not None}
        paths = {"lora_ckpt_paths": args.lora_ckpt_paths, "lora_ckpt_paths_cpu": args.lora_ckpt_paths_cpu}
        given["lora_config"] = LoraServingConfig(**values, **paths, dynamic_multi_lora=args.enable_dynamic_multi_lora)
    if args.enable_chunked_prefill:
        given |= {"chunked_prefill_config": {"max_num_seqs": args.max_num_seqs or 0}, "is_block_kv_layout": True}
    if args.modules_to_not_convert_file is not None:
        given |= _modules(args.modules_to_not_convert_file)
    return given


def _json(path: str) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error}") from error


def _modules(path: str) -> dict[str, list[str]]:
    """The modules of the model and of its draft that are not quantized, of a JSON file."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        parts = {"": content.get("model", content), "draft_model_": content.get("draft_model")}
        return {f"{part}{_MODULES}": list(one[_MODULES]) for part, one in parts.items() if one}
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        hint = 'Pass a JSON file with {"modules_to_not_convert": [...]}.'
        message = f"{path} cannot be read ({type(error).__name__}: {error})."
        raise ConfigError(message, hint=hint, file=path) from error
