"""A GGUF file as a checkpoint folder: configuration and tokenizer by transformers, weights as they are in the file.

transformers reads an architecture's settings and its tokenizer; they are kept in a folder of this package's cache, next
to a link to the file and the names of its tensors. Everything after that treats it as any other folder.

    folder = gguf_folder(Path("models"), "model.Q8_0.gguf")
    source = open_gguf(folder)
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ..base import env
from ..base.transformers_types import PreTrainedConfig, PreTrainedModel
from ..errors import ModelError
from ..files.atomic import can_write, private_folder
from ..files.plain_json import parse_json
from ..weights import (
    GGUF_HINT,
    GgufFile,
    GgufName,
    GgufSource,
    apply_gguf_settings,
    gguf_names,
    require_all_read,
    require_settings,
)
from .quantization import with_quantization

logger = logging.getLogger(__name__)

METHOD = "gguf"
"""Name of the method in `quantization_config`, as transformers spells it."""

_RUN_NAME = "_model_name_or_path"
_LINK, _NAMES = "model.gguf", "gguf_names.json"


def gguf_folder(folder: Path, gguf_file: str) -> Path:
    """Return a checkpoint folder for a GGUF file; it is made when the file is used for the first time."""
    path = folder / gguf_file
    if not path.is_file():
        others = sorted(one.name for one in folder.glob("*.gguf"))
        message = f"{folder} has no file {gguf_file}" + (f", only {', '.join(others)}." if others else ".")
        raise ModelError(message, hint="Pass the name of a file in the folder.", gguf_file=gguf_file, files=others)
    if importlib.util.find_spec("gguf") is None:
        message = f"The package gguf is not installed; {gguf_file} is read with it."
        raise ModelError(message, hint="Run `pip install gguf`.", package="gguf")
    file, status = GgufFile.open(path), path.stat()
    import transformers

    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {transformers.__version__} {_source_hash()}"
    root = env.home() / METHOD
    root = root if can_write(root) else private_folder(root)
    made = root / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not made.is_dir():
        env.make_home()
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=root, prefix=".partial-"))
        try:
            _write(work, path, file)
            try:
                work.rename(made)
            except OSError:  # another process was faster
                if not made.is_dir():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return made


def _source_hash() -> str:
    """What a folder holds follows from these files."""
    readers = sorted((Path(__file__).parents[1] / "weights").glob("gguf*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in (Path(__file__), *readers))).hexdigest()[:8]


def is_gguf(folder: Path) -> bool:
    """Return whether a folder is one that `gguf_folder` made."""
    return (folder / _NAMES).is_file()


def gguf_path(folder: Path) -> Path:
    """Return the file of a folder that `gguf_folder` made."""
    return folder / _LINK


def gguf_options(folder: Path) -> dict[str, Any]:
    """Return the options with which transformers loads a folder that `gguf_folder` made, with all settings."""
    from transformers import AutoConfig, GgufConfig

    config = with_quantization(AutoConfig.from_pretrained(folder), None)
    return {
        "config": config,
        "gguf_file": gguf_path(folder).name,
        "quantization_config": GgufConfig(dequantize=True),
    }


def open_gguf(folder: Path) -> GgufSource | None:
    """Return the tensors of a folder that `gguf_folder` made, or None if only transformers can convert them."""
    names = parse_json((folder / _NAMES).read_bytes())
    file = GgufFile.open(gguf_path(folder).resolve())
    if names is None:
        return None
    return GgufSource(file, {name: GgufName(name=place[0], num_heads=place[1]) for name, place in names.items()})


def _write(work: Path, path: Path, file: GgufFile) -> None:
    """Write the files of a folder."""
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    require_settings(file)
    architecture = str(file.settings.get("general.architecture"))
    try:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        apply_gguf_settings(config, file)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except ModelError:
        raise
    except (
        *(ValueError, LookupError, TypeError, AttributeError, OSError, ImportError, RuntimeError, ArithmeticError),
        *(AssertionError, StrictDataclassError),
    ) as error:
        message = (
            f"transformers cannot read {path}, whose architecture is {architecture}: {type(error).__name__}: {error}"
        )
        raise ModelError(message, hint=GGUF_HINT, path=str(path), architecture=architecture) from error
    names = gguf_names(model, architecture)
    require_all_read(file, {place.name for place in names.values()} if names is not None else _converted(model, file))
    stored = None if names is None else {name: (place.name, place.num_heads) for name, place in names.items()}
    (work / _NAMES).write_text(json.dumps(stored))
    config.architectures = [type(model).__name__]
    config.quantization_config = _settings(file, architecture, is_read_here=names is not None)
    # The name of a training run from the header is no folder.
    data = {name: value for name, value in config.to_dict().items() if name not in ("_name_or_path", _RUN_NAME)}
    (work / "config.json").write_text(json.dumps(data, indent=2))
    _write_generation(work, config)
    _write_tokenizer(work, path, file)
    (work / _LINK).symlink_to(path.resolve())


def _settings(file: GgufFile, architecture: str, *, is_read_here: bool) -> dict[str, Any]:
    """What `sources/quantization.py` reads: the forms of the matrices, without those of vocabulary."""
    matrices = {name: entry for name, entry in file.entries.items() if len(entry.shape) > 1}
    forms = Counter(entry.type_name for name, entry in matrices.items() if name.startswith("blk."))
    head = matrices.get("output.weight") or matrices.get("token_embd.weight")
    return {
        "quant_method": METHOD,
        "architecture": architecture,
        "forms": dict(forms.most_common()),
        "head": head and head.type_name,
        "is_read_here": is_read_here,
    }


def _converted(model: PreTrainedModel, file: GgufFile) -> set[str]:
    """Return the tensors of a file that transformers converts; it may know experts without their ending."""
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        get_gguf_hf_weights_map,
    )

    architecture = str(file.settings.get("general.architecture"))
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=model.config.to_dict())
    names = get_gguf_hf_weights_map(model, processor)
    return {name for name in file.entries if name in names or name.removesuffix(".weight") in names}


def _write_generation(work: Path, config: PreTrainedConfig) -> None:
    from transformers import GenerationConfig

    tokens = {name: getattr(config, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    GenerationConfig(**tokens).save_pretrained(work)


def _write_tokenizer(work: Path, path: Path, file: GgufFile) -> None:
    """Write the tokenizer, which a model can be compiled without."""
    from transformers import AutoTokenizer

    if "tokenizer.ggml.model" not in file.settings:
        return
    try:
        AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(work)
    except Exception as error:  # noqa: BLE001  (tokenizers raises no narrower one)
        logger.warning("transformers cannot read the tokenizer of %s (%s); the export has none.", path, error)
