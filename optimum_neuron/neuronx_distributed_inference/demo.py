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
from ..errors import ConfigError, NeuronError
from .accuracy import check_accuracy, get_generate_outputs, pad_with_end
from .adapter import SETTINGS
from .application import NeuronBaseForCausalLM
from .benchmark import benchmark_sampling
from .config import NeuronConfig
from .demo_arguments import CheckAccuracyMode, neuron_keywords, parse_args as parse, without_effect
from .families import FAMILIES, model_class
from .inference_config import load_pretrained_config
from .logits import DIVERGENCE, Tolerances, check_accuracy_logits
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
    pad_with_end(tokenizer)
    if not _compile(model, draft, tokenizer, args):
        return
    _load(model, draft, args)
    settings = _settings(args)
    run_accuracy_check(
        model,
        tokenizer,
        settings,
        args.prompts,
        args.check_accuracy_mode,
        args.divergence_difference_tol,
        args.tol_map,
        num_tokens_to_check=args.num_tokens_to_check,
        draft_model=draft,
        expected_outputs_path=args.expected_outputs_path,
        input_start_offsets=args.input_start_offsets,
    )
    offsets = args.input_start_offsets
    run_generation(model, tokenizer, args.prompts, settings, draft, args.adapter_ids, input_start_offsets=offsets)
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
    prompt: str | Sequence[str],
    check_accuracy_mode: CheckAccuracyMode,
    divergence_difference_tol: float = DIVERGENCE,
    tol_map: str | None = None,
    num_tokens_to_check: int | None = None,
    draft_model: NeuronBaseForCausalLM | None = None,
    expected_outputs_path: str | None = None,
    input_start_offsets: Sequence[int] | None = None,
) -> None:
    """Compare with transformers, or with a file.

    Args:
        model: the loaded model.
        tokenizer: its tokenizer.
        generation_config: settings.
        prompt: the text, or one for each row; they are repeated until there are enough.
        check_accuracy_mode: what is compared.
        divergence_difference_tol: see `check_accuracy_logits_v2`.
        tol_map: tolerances as text, such as "{None: (1e-5, 0.05), 5: (1e-5, 0.01)}".
        num_tokens_to_check: length of the answer; None: up to the compiled length.
        draft_model: proposes tokens.
        expected_outputs_path: file of torch.save with expected tokens or logits; None: transformers computes them.
        input_start_offsets: see `shift_inputs_by_offset`.

    Raises:
        LogitMatchingError: a difference is too large.
        ConfigError: `tol_map` is no mapping.
    """
    mode, expected, num_rows = check_accuracy_mode, None, model.neuron_config.batch_size
    if mode == CheckAccuracyMode.SKIP_ACCURACY_CHECK:
        print("\nSkipping accuracy check")
        return
    if expected_outputs_path is not None:
        expected = torch.load(expected_outputs_path, map_location="cpu", weights_only=True)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    options: dict[str, Any] = {"prompt": (prompts * num_rows)[:num_rows], "num_tokens_to_check": num_tokens_to_check}
    options |= {"input_start_offsets": input_start_offsets, "generation_config": generation_config}
    if mode == CheckAccuracyMode.TOKEN_MATCHING:
        print("\nChecking accuracy by token matching")
        check_accuracy(model, tokenizer, expected_token_ids=expected, draft_model=draft_model, **options)
        return
    print("\nChecking accuracy by logit matching")
    is_draft = mode == CheckAccuracyMode.DRAFT_LOGIT_MATCHING
    options |= {"divergence_difference_tol": divergence_difference_tol, "tol_map": _tolerances(tol_map)}
    checked = (draft_model or model.draft or model) if is_draft else model
    check_accuracy_logits(checked, tokenizer, expected_logits=expected, **options)


def _tolerances(text: str | None) -> Tolerances | None:
    """Tolerances of a text."""
    if text is None:
        return None
    try:
        read = ast.literal_eval(text)
        return {None if key is None else int(key): (float(one[0]), float(one[1])) for key, one in read.items()}
    except (ValueError, SyntaxError, AttributeError, TypeError, LookupError) as error:
        message = f"tol_map={text!r} is no mapping from numbers of logits to pairs of tolerances."
        raise ConfigError(
            message, hint='Pass for example "{5: (1e-5, 0.01)}".', option="tol_map", value=text
        ) from error


def run_generation(
    model: NeuronBaseForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    generation_config: GenerationConfig,
    draft_model: NeuronBaseForCausalLM | None = None,
    adapter_ids: Any = None,
    input_capture_hook: Any = None,
    input_start_offsets: Sequence[int] | None = None,
) -> None:
    """Generate an answer to each prompt, and print it.

    Args:
        model: the loaded model.
        tokenizer: its tokenizer.
        prompts: texts; a single one is for all rows of the batch.
        generation_config: settings.
        draft_model: proposes tokens.
        adapter_ids: LoRA adapter of each prompt.
        input_capture_hook: must be None: inputs are not captured.
        input_start_offsets: see `shift_inputs_by_offset`.
    """
    print("\nGenerating outputs...")
    print(f"Prompts: {prompts}")
    settings = copy.deepcopy(generation_config)
    settings.update(max_length=model.neuron_config.max_length, max_new_tokens=None)
    _, texts = get_generate_outputs(
        model,
        prompts * model.neuron_config.batch_size if len(prompts) == 1 else prompts,
        tokenizer,
        draft_model=draft_model,
        input_capture_hook=input_capture_hook,
        input_start_offsets=input_start_offsets,
        generation_config=settings,
        adapter_ids=adapter_ids,
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
