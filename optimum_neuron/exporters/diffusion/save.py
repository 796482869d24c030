"""Write an exported pipeline: a folder for each program beside the schedulers and tokenizers, as diffusers has them.

model_index.json       parts and their classes, as in the checkpoint; written last
unet/, vae_decoder/    exports of one program each, with weights under their names in the checkpoint
scheduler/, tokenizer/, safety_checker/ as diffusers and transformers save them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...options.configuration import NEFF_FILE
from ...sources import FACTS, INDEX_FILE, is_pipeline
from ..save import save_folder
from .pipeline import PreparedPipeline

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


def save_pipeline(prepared: PreparedPipeline, output: Path, *, pipe: DiffusionPipeline | None = None) -> int:
    """Write an exported pipeline; return the size of its programs and weights in bytes.

    Args:
        pipe: pipeline whose schedulers, processors and safety checker are saved; None: those of the checkpoint.
    """
    check_pipeline_output(prepared.source.folder, output)
    import diffusers

    pipe = pipe or prepared.stock
    output.mkdir(parents=True, exist_ok=True)
    (output / INDEX_FILE).unlink(missing_ok=True)
    size_bytes = sum(save_folder(part, output / name) for name, part in prepared.parts.items())
    for name, part in pipe.components.items():
        if part is not None and name not in prepared.models and hasattr(part, "save_pretrained"):
            part.save_pretrained(output / name)
            size_bytes += sum(path.stat().st_size for path in (output / name).glob("*.safetensors"))
    index = {name: value for name, value in pipe.config.items() if name != "_name_or_path"}
    index |= {"_class_name": type(prepared.stock).__name__, "_diffusers_version": diffusers.__version__}
    if prepared.additions:
        index[FACTS] = {"additions": prepared.additions.to_dict()}
    (output / INDEX_FILE).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return size_bytes


def check_pipeline_output(source: Path, output: Path) -> None:
    """Reject an output folder that is not an exported pipeline."""
    is_export = any(output.glob(f"*/{NEFF_FILE}"))
    if output.exists() and (output.resolve() == source.resolve() or (is_pipeline(output) and not is_export)):
        message = f"The output {output} is a pipeline that is not exported."
        raise ConfigError(message, hint="Choose another output folder.", output=str(output))
