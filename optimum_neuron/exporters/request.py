"""A compile as plain data: the key of the compile cache and of its request index.

A request is known before the model is captured, so a warm export needs no capture. Neither holds a path or a
weight: a fine-tuned checkpoint of the same configuration hits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ..base import env
from ..base.core import Choice, TorchDtype
from ..base.foreign import module_facts
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..compiler import COMPILER_VERSION, Program, arithmetic_options, source_hash
from ..compiler.rules import neuroncore_v1
from ..errors import ConfigError, ModelError
from ..files.plain_json import canonical_json
from ..hardware import (
    TARGETS,
    Target,
    require_compilable,
    require_default_lnc,
    require_degrees,
    require_dtype,
    resolve_instance,
    resolve_target,
)
from ..kinds import compile_options, kind_of
from ..options.configuration import CompileConfig, degrees_of, plain_op_names
from ..options.option import EXPORT_HELP, check_known, options_of
from ..options.peer_attributes import with_origin, without_foreign
from ..sources import (
    STATIC,
    ModelSource,
    infer_task,
    load_source,
    plain_modules,
    plain_task,
    published_cache,
    published_scheme,
    quantization_of,
    require_cache_scales,
)
from .peer_options import split_options

HOST_OPS_OF_INF1: Mapping[str, tuple[str, ...]] = {
    "encoder": neuroncore_v1.LOOKUPS,
    "seq2seq": (*neuroncore_v1.LOOKUPS, *neuroncore_v1.CACHE_WRITES),
}
"""Kinds of models that Inf1 runs, and the operators of each that are left to the CPU."""
INF1 = "inf1"

_NOT_STRUCTURE = (
    *("_name_or_path", "name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache"),
    *("id2label", "label2id", "problem_type", "output_attentions", "output_hidden_states", "return_dict", "neuron"),
    "quantization_config",
    "_diffusers_version",
)
"""Training changes these, or an export writes them, and a graph for inference does not depend on them: fine-tuned
checkpoints hit. So do fields that end as `Kind.ignored_endings` says."""

_STRUCTURE = ("token_dropout",)
"""Has such an ending, and scales embeddings in inference too (ESM)."""


def neuron_config(
    source: ModelSource, options: dict[str, Any], *, trust_remote_code: bool = False
) -> tuple[Any, Choice[Target]]:
    """Build the complete configuration of a compile from keyword options.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another, or is one of other models.
        UnsupportedDtypeError: The target does not support the dtype.
    """
    check_known(options, compile_options(), what="the export", listed=EXPORT_HELP)
    options = plain_options(options)
    task = infer_task(source.config, options.pop("task", None) or "auto").value
    kind = kind_of(task, source.config.model_type)
    kind.require_task(source, task)
    target = resolve_target(options.get("instance_type"))
    of_inf1 = target.value.name == INF1
    if of_inf1 and kind.name not in HOST_OPS_OF_INF1:
        raise _not_of_inf1(task)
    if not of_inf1:
        require_compilable(target.value)
    require_default_lnc(target.value.chip)
    instance = resolve_instance(options.pop("instance_type", None)).value
    fields = kind.plain({name: value for name, value in options.items() if value is not None})
    fields = without_foreign(fields, kind.config_class.option_names(), f"a model for {task}")
    check_known(fields, kind.config_class.option_names(), what=f"a model for {task}", listed=EXPORT_HELP)
    fields = _published_quantization(source, kind.config_class.option_names()) | fields
    if "kv_cache_dtype" in kind.config_class.option_names():
        fields |= published_cache(source.config, chosen=fields.get("kv_cache_dtype"))
        if fields.get("kv_cache_dtype") == STATIC:
            require_cache_scales(source)
    if of_inf1:
        # What neuron-cc does unless told otherwise: it leaves lookups to the CPU, and rounds what it compiles.
        hosted = (*HOST_OPS_OF_INF1[kind.name], *fields.get("allow_host_ops", ()))
        fields = {"torch_dtype": "float32"} | fields | {"allow_host_ops": hosted}
    fields.setdefault("torch_dtype", _default_dtype(source, fields.get("auto_cast", "none")))
    fields = _environment_options(fields["torch_dtype"]) | fields
    if of_inf1 and fields["torch_dtype"] == "float32":
        fields.setdefault("auto_cast", target.value.auto_cast)
    config = kind.config_class(task=task, target=target.value.name, instance_type=instance.name, **fields)
    require_degrees(instance, **degrees_of(config))
    require_dtype(target.value, config.torch_dtype)
    if config.auto_cast != "none":
        require_dtype(target.value, config.auto_cast_type)
    resolved = kind.resolve(source, config, trust_remote_code=trust_remote_code)
    return with_origin(resolved, source.name, source.revision), target


def _not_of_inf1(task: str) -> ConfigError:
    """Return the error for a kind of model that the documents list for no Inf1 instance."""
    targets = [other.name for other in TARGETS.values() if other.compilable]
    message = (
        f"A model for {task} cannot be compiled for {INF1}: NeuronCore-v1 runs encoders, convolutional networks, and "
        "text encoder-decoders."
    )
    hint = f"Compile for one of {', '.join(targets)}, or trace the parts that it has with torch.neuron.trace."
    return ConfigError(message, hint=hint, target=INF1, task=task, targets=targets)


def _published_quantization(source: ModelSource, names: Sequence[str]) -> dict[str, Any]:
    """Return the options with which a checkpoint with quantized weights is compiled for its own numbers."""
    settings = quantization_of(source.config)
    scheme = None if settings is None or "quantization" not in names else published_scheme(settings).value
    if scheme is None:
        return {}
    assert settings is not None
    return {"quantization": scheme, "modules_to_not_convert": plain_modules(source, settings)}


def _environment_options(torch_dtype: str) -> dict[str, str]:
    """Return the options that NEURON_CC_FLAGS sets. Auto-cast rounds float32, so it has no effect on other weights."""
    options = arithmetic_options(env.compiler_flags())
    return {name: value for name, value in options.items() if torch_dtype == "float32" or name == "optlevel"}


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in one spelling: users write `torch.bfloat16`, 2, "sentence-similarity" and "aten::sort" too."""
    plain = {
        key: str(value).removeprefix("torch.") if key in ("torch_dtype", "optlevel") and value is not None else value
        for key, value in options.items()
    }
    if plain.get("task") == "auto":
        del plain["task"]
    elif isinstance(task := plain.get("task"), str):
        plain["task"] = plain_task(task)
    if isinstance(names := plain.get("allow_host_ops"), (list, tuple, set, frozenset)):
        plain["allow_host_ops"] = list(plain_op_names(map(str, names)))
    return plain


def _default_dtype(source: ModelSource, auto_cast: str) -> str:
    """The checkpoint's own dtype; float32 with auto-cast, which rounds float32."""
    of_module = module_facts(source.module).dtype
    dtype = str(of_module or source.config.dtype or "float32").removeprefix("torch.")
    return dtype if auto_cast == "none" and dtype in get_args(TorchDtype) else "float32"


def structure_of(config: PreTrainedConfig, task: str = "text-generation") -> dict[str, Any]:
    """Return the part of a transformers configuration that can shape a graph."""
    endings = kind_of(task, config.model_type).ignored_endings()
    data = json.loads(config.to_json_string(use_diff=False))
    return _structure(data, endings) | {"num_labels": config.num_labels}


def _structure(data: dict[str, Any], endings: tuple[str, ...]) -> dict[str, Any]:
    """Fields that can shape a graph, of the configurations inside too, such as that of a vision tower."""
    return {
        key: _structure(value, endings) if isinstance(value, dict) else value
        for key, value in data.items()
        if key in _STRUCTURE or (key not in _NOT_STRUCTURE and not key.endswith(endings))
    }


def structure_differences(
    config: PreTrainedConfig, compiled: PreTrainedConfig, task: str = "text-generation"
) -> list[str]:
    """Return the fields in which two transformers configurations need different graphs, as text."""
    left, right = structure_of(config, task), structure_of(compiled, task)
    return [
        f"{key}={left.get(key)!r}, compiled with {right.get(key)!r}"
        for key in sorted({*left, *right})
        if left.get(key) != right.get(key)
    ]


def request_fields(source: ModelSource, config: CompileConfig) -> dict[str, Any]:
    """Describe a compile before anything is captured."""
    return {**installed_versions(), "model": structure_of(source.config, config.task), **_flags(config)}


def installed_versions() -> dict[str, str]:
    """Return the versions that a request names: others compile other programs."""
    import torch
    import transformers

    return {
        "compiler_version": COMPILER_VERSION,
        "source_hash": source_hash(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def label_of(source: ModelSource) -> str | None:
    """Return the name under which a cache lists a model; None for a folder, whose path is private, or one in memory."""
    if source.module is not None or Path(source.name).expanduser().is_dir():
        return None
    return f"{source.config.model_type}/{source.name}"


def entry_fields(
    program: Program, metadata: Mapping[str, Any], source: ModelSource, config: CompileConfig
) -> dict[str, Any]:
    """Describe a compiled program: everything that decides its NEFF.

    Two checkpoints may have one program and other metadata, such as the token that pads their inputs.
    """
    text_config = source.config.get_text_config(decoder=True)
    sizes = {
        "model_type": source.config.model_type,
        "num_hidden_layers": facts_of(text_config).num_hidden_layers,
        "hidden_size": facts_of(text_config).hidden_size,
    }
    spelled = canonical_json(metadata, what="metadata of a NEFF")
    hashes = {"ir_hash": program.content_hash(), "metadata_hash": hashlib.sha256(spelled).hexdigest()}
    return {"compiler_version": COMPILER_VERSION, **hashes, **sizes, **_flags(config)}


def _flags(config: CompileConfig) -> dict[str, Any]:
    """Shapes and flags; the instance size and where weights are kept do not change the program."""
    options = options_of(type(config))
    return {name: value for name, value in config.to_dict().items() if options[name].in_program}


def without_weights(
    model_name_or_path: str | Path, options: dict[str, Any]
) -> tuple[ModelSource, CompileConfig, Choice[Target], bool]:
    """Return a checkpoint without its weights, the complete configuration, the target, and `trust_remote_code`."""
    where, fields = split_options(options)
    source = load_source(model_name_or_path, with_weights=False, **where)
    trust = where.get("trust_remote_code", False)
    config, target = neuron_config(source, fields, trust_remote_code=trust)
    if kind_of(config.task, source.config.model_type).name == "diffusion":
        message = f"{model_name_or_path} is a pipeline of several models, which only an export compiles together."
        raise ModelError(message, hint="Export it; the report has the graphs and the memory of each model.")
    return source, config, target, trust
