"""From a GGUF file to a plain Hugging Face checkpoint in bfloat16, in a process of its own.

A process, so that the caller imports neither torch nor transformers, gets the memory of the conversion back, and keeps
its environment: the child alone is set offline. It knows nothing of packages and caches.

    from optimum_neuron.checkpoints.gguf import convert

    convert(Path("model.gguf"), Path("checkpoint"))
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import ModelError, refusal
from .package import tool_error

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def require_gguf() -> None:
    """Raise unless the `gguf` package is installed.

    Raises:
        ModelError: With the command that installs it.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            refusal(
                asked="converting a GGUF file",
                found="the gguf package is not installed",
                why="transformers reads GGUF files through it",
                do='run `pip install "optimum-neuron-sim[checkpoints]"`',
            )
        )


def convert(source: Path, destination: Path, *, progress: bool = True) -> None:
    """Convert a GGUF file into a Hugging Face folder: config, generation config, bfloat16 weights, tokenizer.

    Args:
        source: The GGUF file of a causal language model.
        destination: The folder to write; created.
        progress: Show transformers' progress bars on stderr.

    Raises:
        ModelError: If the gguf package is missing or transformers cannot read the file.
        CacheError: If the disk is full.
    """
    require_gguf()
    command = [sys.executable, "-c", f"from {__name__} import _main; _main()", str(source), str(destination)]
    command += [] if progress else ["--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        output = _collect(child.stdout, show=progress)
    if child.returncode != 0:
        raise tool_error(
            asked=f"converting {source.name}",
            output=output,
            why=f"the conversion ended with exit status {child.returncode}",
            do="check that transformers supports the file's architecture and that memory suffices (the weights are "
            "unpacked to bfloat16)",
        )


def _collect(stream: IO[bytes], *, show: bool) -> str:
    """Read a child's output to its end, repeating it on this process's stderr while it runs."""
    chunks = []
    while chunk := os.read(stream.fileno(), 4096):
        chunks.append(chunk)
        if show:
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()
    return b"".join(chunks).decode("utf-8", "replace")


def _read(source: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # dequantize: dense weights on every machine. Without it the result depends on whether a kernel package is there,
    # and the model counts as quantized, which save_pretrained refuses.
    model, report = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    wrong = {kind: sorted(map(str, keys)) for kind, keys in report.items() if keys}
    if wrong:
        raise ModelError(
            refusal(
                asked=f"reading {source.name}",
                found=json.dumps(wrong),
                why="every tensor of the file must have its place in the model, and the reverse",
                do="use a GGUF file of an architecture that transformers reads completely",
            )
        )
    return model, tokenizer


def _convert_here(source: Path, destination: Path) -> None:
    from transformers import GenerationConfig

    model, tokenizer = _read(source)
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


def _drop_load_options(path: Path) -> None:
    """Remove how the tokenizer happened to be loaded, which transformers saves with it."""
    options = json.loads(path.read_text("utf-8"))
    kept = {key: value for key, value in options.items() if key not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _main() -> None:
    """The child process: it alone changes its environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    # Read at import by huggingface_hub and tqdm, so set before transformers is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.quiet:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = os.environ["TQDM_DISABLE"] = "1"
    _convert_here(options.source, options.destination)
