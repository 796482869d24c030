"""The command `inference_demo`: compile a checkpoint, load it, check its accuracy, generate, and measure.

    inference_demo --model-type llama --task-type causal-lm run --model-path tiny_llama \\
        --compiled-model-path compiled --torch-dtype float32 --seq-len 64 --max-context-length 32 --prompt "Hello" \\
        --check-accuracy-mode logit-matching
"""

from __future__ import annotations

import argparse
import ast
import copy
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig, set_seed

from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import NeuronError
from .accuracy import check_accuracy, check_accuracy_logits, get_generate_outputs
from .adapter import SETTINGS
from .application import NeuronBaseForCausalLM
from .benchmark import benchmark_sampling
from .config import NeuronConfig
from .demo_arguments import CheckAccuracyMode, neuron_keywords, parse_args as parse, without_effect
from .families import FAMILIES, model_class
from .inference_config import load_pretrained_config
from .parts import FusedSpecNeuronConfig

logger = logging.getLogger(__name__)

Model = type[NeuronBaseForCausalLM]
_MODULES = "modules_to_not_convert"


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read a command line; None for that of the process."""
    return parse(FAMILIES, words)


def create_neuron_config(model_cls: Model, args: argparse.Namespace) -> tuple[dict[str, Any], NeuronConfig]:
    """Return the keywords that arguments name, and the `NeuronConfig` of them."""
    kind = model_cls.get_neuron_config_cls()
    keywords = neuron_keywords(args, kind)
    return keywords, kind(**keywords)


def _draft(model_cls: Model, args: argparse.Namespace, keywords: dict[str, Any]) -> NeuronBaseForCausalLM | None:
    """The draft of the arguments, with the options of the target that are not about speculation."""
    if args.draft_model_path is None:
        return None
    own = {name: value for name, value in keywords.items() if "speculation" not in name and name != "lora_config"}
    own[_MODULES] = own.pop(f"draft_model_{_MODULES}", own.get(_MODULES))
    if args.draft_model_tp_degree is not None:
        own["tp_degree"] = args.draft_model_tp_degree
    config = model_cls.get_config_cls()(
        model_cls.get_neuron_config_cls()(**own), load_config=load_pretrained_config(args.draft_model_path)
    )
    return model_cls(args.draft_model_path, config)


def run_inference(model_cls: Model, args: argparse.Namespace) -> None:
    """Do what the arguments ask for."""
    print("Loading configs...")
    if unused := without_effect(args):
        logger.info("Without effect on a simulated core: %s.", ", ".join(unused))
    keywords, neuron_config = create_neuron_config(model_cls, args)
    draft, fused = _draft(model_cls, args, keywords), None
    if neuron_config.enable_fused_speculation and draft is not None:
        fused = FusedSpecNeuronConfig(model_cls, draft.config, args.draft_model_path, model_cls)
        draft = None
    config = model_cls.get_config_cls()(
        neuron_config, fused_spec_config=fused, load_config=load_pretrained_config(args.model_path)
    )
    model = model_cls(args.model_path, config)
    tokenizer = AutoTokenizer.from_pretrained(args.model_path, padding_side=neuron_config.padding_side)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if not _compile(model, draft, tokenizer, args):
        return
    _load(model, draft, args)
    settings = _settings(args)
    run_accuracy_check(model, tokenizer, settings, args, draft)
    run_generation(model, tokenizer, args.prompts, settings, draft, adapter_ids=args.adapter_ids)
    if args.benchmark:
        options = {"generation_config": settings, "benchmark_report_path": args.benchmark_report_path}
        benchmark_sampling(model, None if draft is None else draft, **options)


def _settings(args: argparse.Namespace) -> GenerationConfig:
    """The settings of `generate` that the arguments name; others are the checkpoint's."""
    try:
        settings = GenerationConfig.from_pretrained(args.model_path)
    except OSError:
        settings = GenerationConfig()
    drawn = {name: getattr(args, name) for name in SETTINGS} if args.do_sample else SETTINGS
    settings.update(do_sample=args.do_sample, pad_token_id=args.pad_token_id, **drawn)
    return settings


def _compile(
    model: NeuronBaseForCausalLM,
    draft: NeuronBaseForCausalLM | None,
    tokenizer: PreTrainedTokenizerBase,
    args: argparse.Namespace,
) -> bool:
    """Compile what is not skipped; return whether to go on."""
    started = time.monotonic()
    if args.skip_compile:
        print("\nSkipping model compilation")
        return True
    print("\nCompiling and saving model...")
    model.compile(args.compiled_model_path, debug=bool(args.hlo_debug), dry_run=args.compile_dry_run)
    tokenizer.save_pretrained(args.compiled_model_path)
    if draft is not None:
        print("\nCompiling and saving draft model...")
        draft.compile(_draft_folder(args), debug=bool(args.hlo_debug), dry_run=args.compile_dry_run)
    print(f"Compiling and tracing time: {time.monotonic() - started} seconds")
    return not (args.compile_only or args.compile_dry_run)


def _draft_folder(args: argparse.Namespace) -> str:
    return args.compiled_draft_model_path or f"{args.compiled_model_path}/draft"


def _load(model: NeuronBaseForCausalLM, draft: NeuronBaseForCausalLM | None, args: argparse.Namespace) -> None:
    started = time.monotonic()
    if args.on_cpu:
        print("\nLoading model to CPU...")
        model.to_cpu()
    else:
        print("\nLoading model to Neuron...")
        model.load(args.compiled_model_path)
    if draft is not None:
        print("\nLoading draft model to Neuron...")
        draft.load(_draft_folder(args))
    print(f"Total model loading time: {time.monotonic() - started} seconds")


def run_accuracy_check(
    model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    generation_config: GenerationConfig,
    args: argparse.Namespace,
    draft_model: NeuronBaseForCausalLM | None = None,
) -> None:
    """Compare with transformers, or with a file, as `--check-accuracy-mode` says."""
    mode = args.check_accuracy_mode
    if mode == CheckAccuracyMode.SKIP_ACCURACY_CHECK:
        print("\nSkipping accuracy check")
        return
    path, expected = args.expected_outputs_path, None
    if path is not None:
        expected = torch.load(path, map_location="cpu", weights_only=True)
    prompts = (args.prompts * model.neuron_config.batch_size)[: model.neuron_config.batch_size]
    options = {"prompt": prompts, "num_tokens_to_check": args.num_tokens_to_check}
    options["input_start_offsets"] = args.input_start_offsets
    if mode == CheckAccuracyMode.TOKEN_MATCHING:
        print("\nChecking accuracy by token matching")
        check_accuracy(
            model, tokenizer, generation_config, expected_token_ids=expected, draft_model=draft_model, **options
        )
        return
    print("\nChecking accuracy by logit matching")
    checked = model
    if mode == CheckAccuracyMode.DRAFT_LOGIT_MATCHING:
        checked = draft_model or model.draft or model
    tolerances = None if args.tol_map is None else ast.literal_eval(args.tol_map)
    check_accuracy_logits(
        checked,
        tokenizer,
        generation_config,
        expected_logits=expected,
        divergence_difference_tol=args.divergence_difference_tol,
        tol_map=tolerances,
        **options,
    )


def run_generation(
    model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    generation_config: GenerationConfig,
    draft_model: NeuronBaseForCausalLM | None = None,
    **options: Any,
) -> None:
    """Generate an answer to each prompt, and print it."""
    print("\nGenerating outputs...")
    print(f"Prompts: {prompts}")
    settings = copy.deepcopy(generation_config)
    settings.update(max_length=model.neuron_config.max_length, max_new_tokens=None)
    _, texts = get_generate_outputs(
        model, prompts, tokenizer, draft_model=draft_model, generation_config=settings, **options
    )
    print("Generated outputs:")
    for number, text in enumerate(texts):
        print(f"Output {number}: {text}")


def _show_log() -> None:
    """Show messages from INFO up, unless the environment names another level."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    own = logging.getLogger(__package__)
    if own.parent is not None and own.parent.level == logging.NOTSET:
        own.setLevel(logging.INFO)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    Args:
        argv: its arguments; None for those of the process.
    """
    args = parse_args(argv)
    _show_log()
    set_seed(0)
    try:
        run_inference(model_class(args.model_type), args)
    except NeuronError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
