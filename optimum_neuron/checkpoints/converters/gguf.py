"""From a GGUF file to a plain Hugging Face checkpoint in bfloat16."""

from __future__ import annotations

import json
from pathlib import Path

from ...base.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from ...errors import ModelError
from ...weights import GgufFile, GgufSource, apply_gguf_settings, gguf_names, require_all_read


def convert(source: Path, destination: Path) -> None:
    """Write config, generation config, bfloat16 weights and tokenizer, from one file of a causal language model.

    Raises:
        ModelError: If a tensor or setting of the file has no place in the model, or the reverse.
    """
    from transformers import GenerationConfig

    (path,) = source.glob("*.gguf")
    model, tokenizer = _read(path)
    config = model.config
    # The name of a training run from the GGUF header, and the temporary folder: neither is the checkpoint's identity.
    config.__dict__.pop("_model_name_or_path", None)
    config._name_or_path = ""
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(destination)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(destination)
    _drop_load_options(destination / "tokenizer_config.json")


def _read(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read configuration and tokenizer by transformers; weights are read here, in a small part of its time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    file = GgufFile.open(path)
    apply_gguf_settings(config, file)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    _load(model, file)
    return model, tokenizer


def _load(model: PreTrainedModel, file: GgufFile) -> None:
    """Give a model on the device "meta" the tensors of a file."""
    architecture = str(file.settings.get("general.architecture"))
    names = gguf_names(model, architecture)
    if names is None:
        message = f"llama.cpp changes the weights of the architecture {architecture}, so {file.name} is not converted."
        hint = "Use a GGUF file of another architecture."
        raise ModelError(message, hint=hint, architecture=architecture)
    require_all_read(file, {place.name for place in names.values()})
    source = GgufSource(file, names)
    dtype = model.dtype
    model.load_state_dict({name: source.join([name])[0].to(dtype) for name in source.specs}, strict=False, assign=True)
    model.tie_weights()
    missing = sorted(name for name, tensor in model.state_dict().items() if tensor.is_meta)
    if missing:
        message = f"{file.name} lacks tensors of its model: {', '.join(missing)}."
        hint = "Use a GGUF file of an architecture that transformers reads completely."
        raise ModelError(message, hint=hint, missing=missing)


def _drop_load_options(path: Path) -> None:
    """Remove how the tokenizer happened to be loaded, which transformers saves with it."""
    options = json.loads(path.read_text("utf-8"))
    options = {key: value for key, value in options.items() if key not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(options, indent=2, ensure_ascii=False) + "\n", "utf-8")
