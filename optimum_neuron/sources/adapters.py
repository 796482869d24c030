"""Merge PEFT adapters into the checkpoint that they were trained on, which makes a plain folder.

Methods that change weights can be merged (LoRA, DoRA, IA3 and similar ones); methods that add prompts cannot.

    from optimum_neuron.exporters import merge_adapter
    merge_adapter("smollm2", "out/checkpoint-50", "merged")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..base.transformers_types import PreTrainedConfig, PreTrainedModel
from ..base.wording import first_line
from ..errors import ConfigError, ModelError, WeightsError
from .copying import copy_files
from .file_types import ADAPTER, LORA, read_typed
from .gguf import is_gguf
from .references import readable
from .source import ModelSource, find_folder, read_config

CONFIG_FILE = "adapter_config.json"
"""Marks a folder as an adapter's (PEFT)."""

_AUTO_CLASSES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}
"""`task_type` of an adapter to transformers' class; without one the checkpoint's own architecture is taken."""

_SHOWN = 4


def merge_adapter(model_name_or_path: str | Path, adapter: str | Path, output: str | Path, **where: Any) -> Path:
    """Merge an adapter into its base model, in float32, and write a plain checkpoint in the base model's dtype.

    Args:
        model_name_or_path: base model: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        adapter: folder or id that PEFT saved, such as a checkpoint of a trainer.
        output: folder to write; tokenizer and processor are the adapter's where it has them, else the base model's.
        **where: where the base model is, fields of `SourceOptions`.

    Returns:
        The folder.

    Raises:
        ConfigError: PEFT is not installed, the adapter's method cannot be merged, or the output holds something.
        ModelError: there is no adapter, or no base model.
        WeightsError: the adapter is of another model.

    Example:
        ```python no-run
        from transformers import AutoModelForCausalLM

        from optimum_neuron.exporters import merge_adapter

        model = AutoModelForCausalLM.from_pretrained(merge_adapter("smollm2", "out/checkpoint-50", "merged"))
        ```
    """
    output = Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        message = f"The merged model cannot be written to {output}, which is not an empty folder."
        raise ConfigError(message, hint="Choose a new folder.", output=str(output))
    if where.get("gguf_file"):
        message = f"An adapter cannot be merged into the quantized weights of {where['gguf_file']}."
        raise ConfigError(message, hint="Pass the base model in safetensors.", option="gguf_file")
    trust = where.pop("trust_remote_code", False)
    base, folder = find_folder(model_name_or_path, **where), find_folder(adapter)
    if is_gguf(base):
        message = f"An adapter cannot be merged into the quantized weights of {model_name_or_path}."
        raise ConfigError(message, hint="Pass the base model in safetensors.", option="model_name_or_path")
    config = read_config(base, trust_remote_code=trust)
    auto_class = _base_class(read_description(folder), config)
    # transformers divides the blocks of a quantized base evenly, so its weights are dequantized before.
    source = ModelSource(name=str(model_name_or_path), folder=base, config=config, revision=None)
    with readable(source, "float32") as (plain, _):
        adapted = _adapted(auto_class, plain, base, folder, trust_remote_code=trust)
    merged = adapted.merge_and_unload()
    dtype = config.dtype or torch.float32
    merged.to(dtype).save_pretrained(output)
    copy_files(base, output)
    copy_files(folder, output)
    return output


def read_description(folder: Path) -> dict[str, Any]:
    """Read the configuration of an adapter."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        is_model = (folder / "config.json").is_file()
        message = f"{folder} has no {CONFIG_FILE}: it is not an adapter{', but a model' if is_model else ''}."
        hint = "Pass a folder that PEFT or a trainer with peft_config saved."
        raise ModelError(message, hint=hint, adapter=str(folder), is_model=is_model)
    description = read_typed(path, ADAPTER)
    return read_typed(path, LORA) if description.get("peft_type") == "LORA" else description


def _base_class(description: dict[str, Any], config: PreTrainedConfig) -> Any:
    import transformers

    mapping = description.get("auto_mapping") or {}
    names = [mapping.get("base_model_class"), *(config.architectures or ())]
    name = _AUTO_CLASSES.get(str(description.get("task_type"))) or next(filter(None, names), "AutoModel")
    return getattr(transformers, name, transformers.AutoModel)


def _adapted(auto_class: Any, plain: Path, base: Path, folder: Path, *, trust_remote_code: bool) -> Any:
    """The base model in float32, of a folder with plain weights, with the adapter on it, every tensor of it."""
    try:
        from peft import PeftConfig, PeftModel, get_peft_model_state_dict
        from peft.utils import load_peft_weights
    except ImportError as problem:
        raise ConfigError(f"Merging {folder} needs PEFT, which is not installed.", hint="pip install peft") from problem
    try:
        options = PeftConfig.from_pretrained(folder)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        message = f"PEFT cannot read {folder / CONFIG_FILE}: {first_line(error)}"
        raise ModelError(message, hint="Download the adapter again.", file=str(folder / CONFIG_FILE)) from error
    if options.is_prompt_learning:
        method, hint = options.peft_type.value, "Train with LoRA, DoRA or another method that changes weights."
        message = f"The adapter {folder} cannot be merged: {method} adds prompts and changes no weights."
        raise ConfigError(message, hint=hint, adapter=str(folder), method=method)
    # A head that was trained with the adapter is saved with it, and has as many rows as there are classes.
    saved = load_peft_weights(str(folder), device="cpu")
    heads = [len(t) for name, t in saved.items() if name.endswith((".classifier.weight", ".score.weight"))]
    sizes = {"num_labels": heads[0]} if heads else {}
    try:
        model = auto_class.from_pretrained(plain, dtype=torch.float32, trust_remote_code=trust_remote_code, **sizes)
        if (rows := _rows(model, saved)) is not None:
            model.resize_token_embeddings(rows, mean_resizing=False)  # the adapter has the rows
        adapted = PeftModel.from_pretrained(model, folder, config=options)
    except (ValueError, RuntimeError, OSError, TypeError, LookupError, ArithmeticError) as error:
        raise _mismatch(folder, base, first_line(error)) from error
    # Embeddings that were resized or trained are saved under their own names.
    known = {name.replace(".default.", ".") for name in adapted.state_dict()}
    expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if differing := sorted((expected - saved.keys()) | (saved.keys() - expected - known)):
        shown = ", ".join(differing[:_SHOWN]) + (", ..." if len(differing) > _SHOWN else "")
        raise _mismatch(folder, base, f"{len(differing)} tensors are in only one of them: {shown}")
    return adapted


def _rows(model: PreTrainedModel, saved: dict[str, Any]) -> int | None:
    """Return how many tokens an adapter has embeddings for, if they are not those of the base model."""
    rows_of: dict[str, int | None] = {}
    rows = None
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    is_tied = head is not None and head.weight is embeddings.weight
    for module, own in model.named_modules():
        if own is not embeddings and (own is not head or is_tied):
            continue
        whole = f"base_model.model.{module}"
        sizes = {f"{whole}.{name}": 0 for name in ("weight", "base_layer.weight", "token_adapter.base_layer.weight")}
        sizes[f"{whole}.lora_embedding_A"] = 1
        rows_of[module] = next((int(saved[name].shape[dim]) for name, dim in sizes.items() if name in saved), None)
        if rows_of[module] not in (None, own.weight.shape[0]):
            rows = rows_of[module]
    if rows is not None and (missing := [module for module, found in rows_of.items() if found is None]):
        raise ValueError(f"it has {rows} tokens, but no rows of {', '.join(missing)} for the new ones.")
    return rows


def _mismatch(folder: Path, base: Path, reason: str) -> WeightsError:
    hint = f"Pass the model that {CONFIG_FILE} names in base_model_name_or_path."
    message = f"The adapter {folder} was not trained on {base}: {reason}"
    return WeightsError(message, hint=hint, adapter=str(folder), base_model=str(base))
