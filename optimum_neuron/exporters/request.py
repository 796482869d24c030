"""What decides a compiled program, as plain data: the key of the compile cache and of its request index.

A request is known before the model is captured, so a warm export needs no capture. Neither holds a path or a
weight: a fine-tuned checkpoint of the same configuration hits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from ..compiler.cache import CompileCache
from ..compiler.ir import Program
from ..compiler.version import COMPILER_VERSION, source_hash
from ..configuration import NeuronConfig, check_known
from ..core import Choice, TorchDtype
from ..errors import ModelError, refusal
from ..hardware import Target, require_compilable, require_dtype, resolve_instance, resolve_target
from .source import ModelSource, infer_task, load_source

COMPILE_OPTIONS = (
    "task",
    "batch_size",
    "sequence_length",
    "prefill_buckets",
    "decode_buckets",
    "extend_length",
    "instance_type",
    "auto_cast",
    "auto_cast_type",
    "optlevel",
    "torch_dtype",
    "family",
    "inline_weights_to_neff",
)
"""Keywords that decide a program; every entry point of this package takes them under these names."""

SOURCE_OPTIONS = (
    "trust_remote_code",
    "subfolder",
    "revision",
    "token",
    "cache_dir",
    "local_files_only",
    "force_download",
)
"""Keywords that say where a model is found."""

_NOT_STRUCTURE = (
    *("_name_or_path", "name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache"),
    *("id2label", "label2id", "problem_type", "output_attentions", "output_hidden_states", "return_dict"),
)
_NOT_STRUCTURE_ENDINGS = ("token_id", "dropout", "pdrop", "initializer_range", "initializer_factor")
"""Training changes these and a graph for inference does not depend on them, so fine-tuned checkpoints hit."""


def neuron_config(source: ModelSource, options: dict[str, Any]) -> tuple[NeuronConfig, Choice[Target]]:
    """Build the complete configuration of a compile from keyword options.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts another.
        UnsupportedDtypeError: the target lacks the dtype.
    """
    check_known(options, list(COMPILE_OPTIONS), what="the export")
    given = {
        key: value
        for key, value in plain_options(options).items()
        if value is not None and key not in ("task", "instance_type")
    }
    target = resolve_target(options.get("instance_type"))
    require_compilable(target.value)
    instance = resolve_instance(options.get("instance_type")).value
    given.setdefault("torch_dtype", _default_dtype(source.config, given.get("auto_cast", "none")))
    config = NeuronConfig(
        task=infer_task(source.config, options.get("task") or "auto").value,
        target=target.value.name,
        instance_type=instance.name,
        **given,
    )
    require_dtype(target.value, config.torch_dtype)
    if config.auto_cast != "none":
        require_dtype(target.value, config.auto_cast_type)
    return config.resolve(max_position_embeddings=_num_positions(source.config)), target


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the names of a dtype and a level in place of `torch.bfloat16` and 2, which users write too."""
    return {
        key: str(value).removeprefix("torch.") if key in ("torch_dtype", "optlevel") and value is not None else value
        for key, value in options.items()
    }


def _num_positions(config: Any) -> int:
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if limit is None:
        raise ModelError(
            refusal(
                asked=f"compiling a {config.model_type} model",
                found="its configuration has no max_position_embeddings",
                why="a compiled decoder has one cache slot for each position, and this one counts none",
                do="use an architecture with a key and value cache and a limit on positions, such as llama",
            )
        )
    return limit


def _default_dtype(config: Any, auto_cast: str) -> str:
    """The checkpoint's own dtype; float32 where auto-cast, which rounds float32, was asked for."""
    dtype = str(config.dtype or "float32").removeprefix("torch.")
    return dtype if auto_cast == "none" and dtype in get_args(TorchDtype) else "float32"


def structure_of(config: Any) -> dict[str, Any]:
    """The part of a transformers configuration that can shape a graph."""
    data = json.loads(config.to_json_string(use_diff=False))
    return {
        key: value
        for key, value in data.items()
        if key not in _NOT_STRUCTURE and not key.endswith(_NOT_STRUCTURE_ENDINGS)
    }


def structure_differences(asked: Any, compiled: Any) -> list[str]:
    """Fields in which two transformers configurations ask for different graphs, as text."""
    left, right = structure_of(asked), structure_of(compiled)
    return [
        f"{key}={left.get(key)!r}, compiled with {right.get(key)!r}"
        for key in sorted({*left, *right})
        if left.get(key) != right.get(key)
    ]


def request_fields(source: ModelSource, config: NeuronConfig) -> dict[str, Any]:
    """Describe a compile before anything is captured."""
    import torch
    import transformers

    return {
        "compiler_version": COMPILER_VERSION,
        "source_hash": source_hash(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": structure_of(source.config),
        **_flags(config),
    }


def entry_fields(program: Program, source: ModelSource, config: NeuronConfig) -> dict[str, Any]:
    """Describe a compiled program: everything that decides its NEFF."""
    text_config = source.config.get_text_config(decoder=True)
    sizes = {
        "model_type": source.config.model_type,
        "num_hidden_layers": text_config.num_hidden_layers,
        "hidden_size": text_config.hidden_size,
    }
    return {"compiler_version": COMPILER_VERSION, "ir_hash": program.content_hash(), **sizes, **_flags(config)}


def _flags(config: NeuronConfig) -> dict[str, Any]:
    """Shapes and flags; the instance size and where weights are kept do not change the program."""
    return {
        key: value for key, value in config.to_dict().items() if key not in ("instance_type", "inline_weights_to_neff")
    }


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate keywords that find a model from keywords that decide its compile.

    Raises:
        ConfigError: a keyword is neither.
    """
    check_known(options, [*COMPILE_OPTIONS, *SOURCE_OPTIONS], what="the export")
    where = {key: value for key, value in options.items() if key in SOURCE_OPTIONS}
    return where, {key: value for key, value in options.items() if key in COMPILE_OPTIONS}


def cache_request(
    model_name_or_path: str | Path, *, cache_url: str | None = None, **options: Any
) -> tuple[CompileCache, dict[str, Any]]:
    """Return the cache and the fields that an export with these options would ask it for.

    The model is captured, which takes seconds and no weights, because the fields hold the program's hash.

    Raises:
        ModelError: the model cannot be found.
        ConfigError: an option is unknown or out of range.
    """
    from .build import compile_source

    where, compile_options = split_options(options)
    source = load_source(model_name_or_path, **where)
    config, target = neuron_config(source, compile_options)
    built = compile_source(source, config, target.value, trust_remote_code=where.get("trust_remote_code", False))
    return CompileCache(cache_url), entry_fields(built.compiled.program, source, config)
