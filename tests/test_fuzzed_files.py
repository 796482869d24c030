"""JSON files of an exported folder and of the cache with one field changed: an answer, or an error with its reason.

The seed is the name of the file, so a failure can be repeated. Values are of another type, missing, huge, or nested.
"""

from __future__ import annotations

import json
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import optimum_neuron
from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification, pipeline
from optimum_neuron.compiler.cache import CompileCache
from optimum_neuron.errors import NeuronError
from tests import sampling
from tests.encoders import save_letters, save_tiny_encoder, tiny_shapes
from tests.tiny import SMALL

OURS = str(Path(optimum_neuron.__file__).parent)
MISSING = object()
VALUES = (None, "", [], {}, -1, 1e400, 10**30, True, "x", [[]], {"a": {"b": [1]}}, 0, 3.5, float("nan"), MISSING)
NUM_CHANGES = 24
IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, environment) -> Path:
    """An exported BERT with its tokenizer."""
    folder = tmp_path_factory.mktemp("fuzzed")
    save_letters(save_tiny_encoder(folder / "bert", "bert", "text-classification"))
    shapes = tiny_shapes("bert", "text-classification")
    with NeuronModelForSequenceClassification.from_pretrained(folder / "bert", export=True, **shapes) as model:
        model.save_pretrained(folder / "exported")
    return folder / "exported"


def keys(data: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        if key != "vocab":
            yield (*prefix, key)
            if isinstance(value, dict) and len(prefix) < 3:
                yield from keys(value, (*prefix, key))


def changed(data: dict[str, Any], path: tuple[str, ...], value: Any) -> str:
    copy = json.loads(json.dumps(data))
    owner = copy
    for key in path[:-1]:
        owner = owner[key]
    if value is MISSING:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return json.dumps(copy)


def changes(file: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Name of the change, and the new content: each day another part of them."""
    data, choice = json.loads(file.read_text()), random.Random(file.name)
    paths = list(keys(data))
    number, count = sampling.part(request, 4)
    chosen = [(choice.choice(paths), choice.choice(VALUES)) for _ in range(NUM_CHANGES)]
    for path, value in chosen[number::count]:
        yield f"{file.name}: {'.'.join(path)} = {value!r}", changed(data, path, value)


def generates(folder: Path) -> None:
    with NeuronModelForCausalLM.from_pretrained(folder) as model:
        model.generate(IDS, max_new_tokens=1, do_sample=False)


def classifies(folder: Path) -> None:
    with NeuronModelForSequenceClassification.from_pretrained(folder) as model:
        model(IDS)


def answers(folder: Path) -> None:
    run = pipeline("text-classification", folder)
    run("ab")
    run.model.close()


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "decoder/config.json": ("export_folder", generates),
    "decoder/generation_config.json": ("export_folder", generates),
    "decoder/neuron_config.json": ("export_folder", generates),
    "encoder/config.json": ("encoder", classifies),
    "encoder/neuron_config.json": ("encoder", classifies),
    "encoder/tokenizer_config.json": ("encoder", answers),
    "encoder/tokenizer.json": ("encoder", answers),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_field_of_exported_folder(name, request, tmp_path):
    fixture, use = FILES[name]
    source, file = request.getfixturevalue(fixture), name.partition("/")[2]
    copy = shutil.copytree(source, tmp_path / "copy")
    problems = []
    for change, content in changes(source / file, request):
        (copy / file).write_text(content)
        try:
            use(copy)
        except NeuronError:
            continue
        # Another error may be transformers' own, of a kind that names the problem.
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if last.filename.startswith(OURS) or not isinstance(error, (ValueError, OSError)):
                problems.append(f"{change}: {type(error).__name__} in {last.filename}:{last.lineno}: {error}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("field", "value"), [("bos_token_id", "x"), ("eos_token_id", [1, {}]), ("pad_token_id", 10**30)]
)
def test_invalid_special_token_ids(field, value, export_folder, tmp_path):
    copy = shutil.copytree(export_folder, tmp_path / "copy")
    path = copy / "generation_config.json"
    path.write_text(changed({**json.loads(path.read_text()), field: 0}, (field,), value))
    with pytest.raises(NeuronError) as excinfo:
        NeuronModelForCausalLM.from_pretrained(copy)
    details = excinfo.value.details
    assert details["file"] == str(path) and details["key"].partition(".")[0] == field


@pytest.mark.full(days=2)
@pytest.mark.parametrize("name", ["fields.json", "model.done"])
def test_field_of_cache_entry(name, request, checkpoint, tmp_path, monkeypatch):
    """A damaged entry is compiled again, and the listing names its problem."""
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    options = SMALL | {"disable_validation": True, "export": True}

    def load() -> None:
        NeuronModelForCausalLM.from_pretrained(checkpoint, **options).close()

    load()
    (file,) = (tmp_path / "cache").rglob(name)
    whole, original = file.read_bytes(), transformers.logging.get_verbosity()
    problems = []
    transformers.logging.set_verbosity_error()
    for number, (change, content) in enumerate(changes(file, request)):
        file.write_text(content)
        try:
            CompileCache().status()
            if number % 12 == 0:
                load()
        except Exception as error:
            problems.append(f"{change}: {type(error).__name__}: {error}")
        file.write_bytes(whole)
    transformers.logging.set_verbosity(original)
    assert not problems, "\n".join(problems)
