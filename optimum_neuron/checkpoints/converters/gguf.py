"""From a GGUF file to a plain Hugging Face checkpoint in bfloat16."""

from __future__ import annotations

import json
from pathlib import Path

from ...base.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from ...errors import ModelError
from ...weights import GgufFile, apply_gguf_settings


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
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    apply_gguf_settings(config, GgufFile.open(path))
    # dequantize: dense weights on every machine. Without it the result depends on whether a kernel package is there,
    # and the model counts as quantized, which save_pretrained refuses.
    model, report = AutoModelForCausalLM.from_pretrained(
        path.parent,
        config=config,
        gguf_file=path.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    problems = {kind: sorted(map(str, keys)) for kind, keys in report.items() if keys}
    if problems:
        message = f"The tensors of {path.name} do not fit its model: {json.dumps(problems)}."
        hint = "Use a GGUF file of an architecture that transformers reads completely."
        raise ModelError(message, hint=hint, problems=problems)
    return model, tokenizer


def _drop_load_options(path: Path) -> None:
    """Remove how the tokenizer happened to be loaded, which transformers saves with it."""
    options = json.loads(path.read_text("utf-8"))
    options = {key: value for key, value in options.items() if key not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(options, indent=2, ensure_ascii=False) + "\n", "utf-8")
