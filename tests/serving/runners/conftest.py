"""A server with a tiny model of each kind beside decoders, started once for the tests of this folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.encoders import save_letters, save_tiny_encoder
from tests.processors import save_speech_processors
from tests.speech import save_tiny_speech

ENCODER = {"batch_size": 4, "sequence_length": 24, "optlevel": "1", "disable_validation": True}
HAS_SPEECH = all(map(importlib.util.find_spec, ("python_multipart", "soundfile", "soxr")))
HAS_IMAGES = importlib.util.find_spec("diffusers") is not None


def _prompted(folder: Path) -> Path:
    """An embedder that puts a prompt before texts, whose tokens are not pooled."""
    _sentences(folder)
    pooling = {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    prompts = {"prompts": {"find": "find it "}, "default_prompt_name": "find", "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def _sentences(folder: Path) -> Path:
    save_letters(save_tiny_encoder(folder, "bert", "feature-extraction", matryoshka_dimensions=[8, 16]))
    kinds = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
    modules = [{"idx": int(n), "name": n, "path": p, "type": f"sentence_transformers.models.{t}"} for n, p, t in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.fixture(scope="package")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Folder and options of each model."""
    return tiny_kinds(tmp_path_factory.mktemp("kinds"))


def tiny_kinds(work: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Write a tiny model of each kind that can be served here; return their folders and options."""
    made: dict[str, tuple[Path, dict[str, Any]]] = {
        "embed": (_sentences(work / "embed"), ENCODER),
        "prompted": (_prompted(work / "prompted"), ENCODER),
        "rank": (
            save_letters(save_tiny_encoder(work / "rank", "bert", "text-classification", num_labels=1)),
            ENCODER,
        ),
        "two": (
            save_letters(save_tiny_encoder(work / "two", "bert", "text-classification", num_labels=2)),
            ENCODER,
        ),
    }
    if HAS_SPEECH:
        for model_type in ("whisper", "moonshine"):
            folder = save_tiny_speech(work / model_type, model_type)
            options = {"batch_size": 1, "optlevel": "1", "disable_validation": True}
            if model_type == "moonshine":
                options |= {"audio_sequence_length": [8000, 16000]}
            made[model_type] = save_speech_processors(folder, model_type), options
    if HAS_IMAGES:
        from tests.tiny_pipelines.table import save_pipeline

        options = {"height": 32, "width": [32, 48], "batch_size": 2, "optlevel": "1", "disable_validation": True}
        made["sd"] = save_pipeline(work / "sd", "sd"), options
    return made


@pytest.fixture(scope="package")
def kinds(checkpoints: dict[str, Any], environment: None) -> Any:
    """The deployment of `url`."""
    from optimum_neuron.serving import Deployment, ModelSpec, ServeOptions

    specs = [ModelSpec(source=str(path), name=name, options=how) for name, (path, how) in checkpoints.items()]
    return Deployment(specs, ServeOptions(port=0))


@pytest.fixture(scope="package")
def url(kinds: Any) -> Iterator[str]:
    """The address of a running server."""
    from optimum_neuron.serving import running_server

    with running_server(kinds) as url:
        yield url


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[Any]:
    """OpenAI's own client."""
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="package")
def http(url: str) -> Iterator[Any]:
    """Another client, for endpoints that OpenAI does not have."""
    import httpx

    with httpx.Client(base_url=url, timeout=60) as http:
        yield http
