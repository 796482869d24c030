"""Open the tensors that a compiled model is bound to, and the reference model to compare it with.

Most checkpoints are mapped unchanged. Some architectures rename or fuse tensors while transformers loads them
(Mixtral's experts, GPT-NeoX's head); these go through transformers' own loader.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..base.core import Choice
from ..base.foreign import module_facts
from ..base.progress import hidden_bars
from ..base.transformers_types import PreTrainedModel
from ..base.wording import first_line, listed
from ..errors import ModelError, WeightsError
from ..models import SCALE_NAMES, cast_parameters
from ..options.peer_attributes import follows_upstream
from ..weights import (
    Checkpoint,
    GgufSource,
    PublishedExperts,
    PublishedSource,
    QuantizedSource,
    StateDict,
    TensorSource,
    is_expert,
    parse_schemes,
    plain_names,
)
from .gguf import METHOD, open_gguf
from .pipelines import load_component
from .quantization import (
    layout_of,
    method_of,
    published_scheme,
    quantization_of,
    rounding_of,
)
from .references import readable
from .source import ModelSource, served_task
from .tasks import find_task

logger = logging.getLogger(__name__)

SEED = 0
"""Seed of the random numbers that replace missing weights."""


def open_tensors(
    source: ModelSource,
    sources: Mapping[str, tuple[str, ...]],
    *,
    task: str,
    dtype: str,
    trust_remote_code: bool = False,
) -> Choice[TensorSource]:
    """Return the tensors of a checkpoint under the names that `sources` asks for, and how they were opened.

    Names of quantized weights are recipes (`weights/quantized.py`), which are carried out when they are bound.
    """
    names = {name for group in sources.values() for name in group}
    plain = _open_plain(source, plain_names(names), task=task, dtype=dtype, trust_remote_code=trust_remote_code)
    if names <= plain.value.specs.keys():
        return plain
    return Choice(value=QuantizedSource(plain.value, names), reason=f"{plain.reason}; quantized while they are bound")


def _open_plain(
    source: ModelSource, needed: Collection[str], *, task: str, dtype: str, trust_remote_code: bool
) -> Choice[TensorSource]:
    """Return the tensors of a checkpoint, as they are in its files or as transformers loads them."""
    names = set(needed)
    if source.module is not None:
        random = ", ".join(sorted(names & set(source.random_weights)))
        reason = f"loaded by transformers; random numbers: {random}" if random else "a copy of those in memory"
        return Choice(value=tensors_in_memory(source.module, names, source.name), reason=reason)
    quantization = quantization_of(source.config)
    checkpoint = _open_files(source)
    missing = sorted(names - checkpoint.specs.keys()) if checkpoint is not None else sorted(names)
    if quantization is not None and not missing and not isinstance(checkpoint, Checkpoint):
        assert checkpoint is not None, "nothing is missing"
        return Choice(value=checkpoint, reason=_how_mapped(quantization))
    if checkpoint is not None and quantization is None and not missing:
        return Choice(value=checkpoint, reason="mapped from the checkpoint's safetensors")
    model = load_original(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code, needed=names)
    if quantization is not None:
        what = f"dequantizes them from {method_of(quantization)} to {dtype}: {published_scheme(quantization).reason}"
    else:
        what = f"converts this architecture's tensors ({missing[0]} is not in the files)"
    tensors = _state_dict(model, f"{source.folder}, converted by transformers")
    return Choice(value=tensors, reason=f"loaded by transformers, which {what}")


def _open_files(source: ModelSource) -> TensorSource | None:
    """Return the tensors of a folder by plain names; None: only transformers can read a GGUF file."""
    stored = _open_stored(source)
    if stored is None or isinstance(stored, GgufSource) or quantization_of(source.config) is None:
        return stored
    experts = PublishedExperts(stored)
    return experts if experts.weights else stored


def _open_stored(source: ModelSource) -> TensorSource | None:
    """Return the same, with the experts as they are in the files."""
    if (quantization := quantization_of(source.config)) is None:
        return Checkpoint.open(source.folder)
    if method_of(quantization) == METHOD:
        return open_gguf(source.folder)
    checkpoint, layout = Checkpoint.open(source.folder), layout_of(quantization)
    return checkpoint if layout is None else PublishedSource(checkpoint, layout)


def _how_mapped(quantization: Mapping[str, Any]) -> str:
    choice, method = published_scheme(quantization), method_of(quantization)
    where = "the GGUF file" if method == METHOD else f"the checkpoint's safetensors in the layout of {method}"
    rounding = None if method == METHOD else rounding_of(quantization)
    end = "" if rounding is None else f"; numbers are rounded once more, because {rounding}"
    return f"mapped from {where}" + (end if choice.value is not None else f", and dequantized: {choice.reason}")


def plain_modules(source: ModelSource, quantization: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules of a quantized checkpoint whose matrices are plain, by its files if there are any."""
    choice = published_scheme(quantization)
    if choice.value is None or not source.has_weights or source.module is not None:
        return ("lm_head",)
    tensors = _open_files(source)
    assert tensors is not None, "a scheme was found for its layout"
    matrices = [name for name, spec in tensors.specs.items() if len(spec.shape) == 2]
    if isinstance(tensors, GgufSource):
        own = {scheme.name for scheme in parse_schemes(choice.value)}
        plain = [name for name in matrices if tensors.scheme_of(name) not in own]
    else:
        stored = Checkpoint.open(source.folder).specs
        plain = [name for name in matrices if stored.get(name) == tensors.specs[name] and not is_expert(name)]
    if isinstance(tensors, PublishedExperts):
        plain += [name for name in tensors.weights if tensors.is_plain(name)]
    return tuple(name.removesuffix(".weight") for name in plain)


def require_cache_scales(source: ModelSource) -> None:
    """Check that a checkpoint has scales of keys and values, which `kv_cache_dtype="fp8-static"` divides by."""
    if source.module is not None or not any(source.folder.glob("*.safetensors")):
        return
    endings = {name.rpartition(".")[2] for name in Checkpoint.open(source.folder).specs}
    missing = [name for name in SCALE_NAMES.values() if name not in endings]
    if missing:
        raise WeightsError(
            f"kv_cache_dtype='fp8-static' divides keys and values by scales of the checkpoint. {source.name} has no "
            f"tensors named {' or '.join(f'*.{name}' for name in missing)}.",
            hint='Pass kv_cache_dtype="fp8", which needs no scales, or "int8", which has a scale for each token.',
            option="kv_cache_dtype",
            missing=missing,
        )


def check_files(source: ModelSource) -> None:
    """Read the headers of a checkpoint's files."""
    if source.has_weights and source.module is None:
        _open_files(source)


def tensors_in_memory(
    tensors: Mapping[str, torch.Tensor] | torch.nn.Module, names: Collection[str], origin: str
) -> StateDict:
    """Copies of the needed tensors, so that later changes of them, as in training, are not seen."""
    names = plain_names(names)
    state = dict(_state_dict(tensors, origin).tensors if isinstance(tensors, torch.nn.Module) else tensors)
    wrong = [f"{name} is a {type(value).__name__}" for name, value in state.items() if not torch.is_tensor(value)]
    metas = {name for name, value in state.items() if torch.is_tensor(value) and value.is_meta}
    wrong += [f"{name} is on the device meta" for name in names if name in metas]
    if wrong:
        shown = listed(wrong, 12, separator="; ")
        hint = "Pass a model that was loaded with its weights, its state dict, or a folder."
        raise WeightsError(f"The weights of {origin} are not tensors with values: {shown}.", hint=hint, problems=wrong)
    if state.keys() >= set(names):  # otherwise binding rejects them, with the nearest of all names
        state = {name: state[name].detach().to("cpu", copy=True) for name in names}
    return StateDict(tensors=state, origin=origin)


def _state_dict(model: PreTrainedModel, origin: str) -> StateDict:
    # A tied tensor has several names, and the state dict of a model may have been cut to one of them.
    named = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return StateDict(tensors={**{n: t.detach() for n, t in named.items()}, **model.state_dict()}, origin=origin)


def fill_missing(source: ModelSource, *, task: str, dtype: str, trust_remote_code: bool = False) -> ModelSource:
    """Load a checkpoint whose weights are incomplete, and let transformers fill missing ones with random numbers.

    The numbers are the same each time; under Optimum Neuron's rules, they come from torch's seed. A warning names the
    tensors. A complete checkpoint is returned unchanged. The class of the task decides which weights are needed.
    """
    model, missing = _load(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code)
    if not missing:
        return source
    logger.warning(
        "%s lacks %d weights of a %s, which are random numbers now: %s. Results that depend on them "
        "mean nothing until the model is trained.",
        *(source.name, len(missing), type(model).__name__, ", ".join(missing)),
    )
    return dataclasses.replace(source, module=model.eval(), random_weights=tuple(missing))


def with_head(
    source: ModelSource, error: WeightsError, *, task: str, dtype: str, trust_remote_code: bool
) -> ModelSource:
    """Return a checkpoint whose missing head was filled, as transformers and Optimum Neuron do; see `fill_missing`.

    Args:
        source: the checkpoint.
        error: what `load_original` raised for it.
        task: task of the head.
        dtype: dtype of the weights.
        trust_remote_code: run code that comes with the checkpoint.
    """
    if not error.details.get("is_head"):
        raise error
    return fill_missing(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code)


def _is_head(model: PreTrainedModel, missing: Collection[str]) -> bool:
    """Whether missing tensors are of a head or a pooler, which are trained for a task, and not of the model below."""
    base = module_facts(model).base_model
    if base is None:
        return False
    prefix = "" if base is model else f"{model.base_model_prefix}."
    return all(not name.startswith(prefix) or "pooler" in name.split(".") for name in missing)


def load_original(
    source: ModelSource,
    *,
    task: str,
    dtype: str,
    trust_remote_code: bool = False,
    needed: Collection[str] | None = None,
) -> Any:
    """Return the reference model: transformers' on the CPU, in evaluation mode; a model in memory is returned itself.

    The tensors that are `needed` must be in the checkpoint; None: all of the class that the task has.
    """
    if source.module is not None:
        wanted = getattr(torch, dtype)
        return source.module if source.module.dtype == wanted else copy.deepcopy(source.module).to(wanted)
    model, missing = _load(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code)
    if missing := [name for name in missing if needed is None or name in needed]:
        served = served_task(source.config)
        hint = "Download the checkpoint again, or save it with save_pretrained()."
        if served is not None and served.value != task:
            hint = f"Export it for {served.value}, or pass a checkpoint that was trained for {task}."
        hint += " --allow_missing_weights (Python: allow_missing_weights=True) fills them with random numbers."
        message = f"{len(missing)} tensors of the model in {source.folder} are missing: {', '.join(missing[:12])}."
        raise WeightsError(message, hint=hint, problems=missing, is_head=_is_head(model, missing))
    return model.eval()


def _load(source: ModelSource, **how: Any) -> tuple[Any, list[str]]:
    """The reference model, and the weights that are missing in the checkpoint: the same random numbers each time.

    Under the rules of Optimum Neuron, they are the numbers that transformers would draw here.
    """
    with torch.random.fork_rng(devices=[]):
        if not follows_upstream():
            torch.default_generator.manual_seed(SEED)  # `torch.manual_seed` seeds the generators of devices too
        return _loaded(source, **how)


def _loaded(source: ModelSource, *, task: str, dtype: str, trust_remote_code: bool) -> tuple[Any, list[str]]:
    """The reference model in transformers, and the weights that are missing in the checkpoint."""
    import transformers

    if not (name := find_task(task, source.config.model_type).auto_class):
        return load_component(source, dtype)
    folder, auto_class = source.folder, getattr(transformers, name)
    is_quantized = quantization_of(source.config) is not None
    try:
        with readable(source, dtype) as (plain, how), hidden_bars(transformers.utils.logging):
            model, info = auto_class.from_pretrained(
                plain,
                **how,
                dtype=getattr(torch, dtype),
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        hint = "Repair the checkpoint; to export without comparing, pass --disable-validation."
        message = f"transformers cannot load the model in {folder}: {first_line(error)}"
        raise ModelError(message, hint=hint, folder=str(folder)) from error
    if is_quantized:
        # transformers leaves tensors that were not quantized in the dtype of the file.
        cast_parameters(model, getattr(torch, dtype))
    return model, sorted(info["missing_keys"])
