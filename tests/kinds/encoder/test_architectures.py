"""Every architecture of the table with every task that transformers has for it, against transformers in float32.

Batches are larger than compiled and sequences shorter, so that they are split and padded; each is compared with the
reference model on that row alone, without padding. The result is in `support.json`, which `optimum-cli neuron models`
prints; `python -m tests.kinds.encoder.test_architectures` writes it again.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from optimum_neuron import modeling
from optimum_neuron.errors import NeuronError
from optimum_neuron.exporters.validation import FLOAT32_TOLERANCE, compare
from optimum_neuron.kinds import flatten
from optimum_neuron.kinds.encoder import call_options
from optimum_neuron.kinds.encoder.architectures import model_types
from optimum_neuron.kinds.encoder.scenarios import random_inputs
from optimum_neuron.sources import COMPARED, SUPPORT_FILE, TASKS, read_support, tasks_of
from tests import audio_text, image_text, seq2seq, speech
from tests.encoders import save_tiny_encoder, shallow, tiny_shapes
from tests.tiny import CONFIGS

CASES = [
    (model_type, task) for model_type in model_types() for task in tasks_of(model_type) if TASKS[task].kind == "encoder"
]
VALIDATED = {next(case for case in CASES if value in case) for case in CASES for value in case}
"""The first case of each architecture and of each task: there the export compares its results itself, too, and a model
has layers that repeat. Other heads are tried on half as many layers: tracing them takes most of the time.
"""
GENERATING = [
    *((model_type, "text-generation") for model_type in CONFIGS),
    *((model_type, "text2text-generation") for model_type in seq2seq.TINY),
    *((model_type, "automatic-speech-recognition") for model_type in speech.TINY),
    *(
        (model_type, "image-text-to-text")
        for model_type in dict.fromkeys(kind for kind, _ in (image_text.TINY | image_text.MORE_TINY).values())
    ),
    *((model_type, "any-to-any") for model_type in audio_text.TINY),
]
"""Compared in `tests/exporters/test_architectures.py`, and in `test_seq2seq.py`, `test_speech.py`,
`test_image_text*.py`, and `test_multimodal.py` of `tests/modeling`.
"""
ROWS = {"batch_size": 3, "text_batch_size": 3, "image_batch_size": 2}
"""The batches that were compiled are smaller."""


def pad_last_row(signature, inputs):
    """End the last row with padding, where the model takes a mask."""
    for spec in signature.inputs:
        dims = [dim for dim, axis in enumerate(spec.axes) if axis in signature.padded and axis != "num_choices"]
        if dims:
            size = inputs[spec.name].shape[dims[-1]]
            padding = 0 if spec.name.endswith("_mask") else spec.padding
            inputs[spec.name][-1].narrow(dims[-1] - 1, size - size // 4, size // 4).fill_(padding)


def outcome(model_type: str, task: str, folder: Path) -> str:
    """`COMPARED`, or why the export was refused; a difference is an error."""
    is_first = (model_type, task) in VALIDATED
    save_tiny_encoder(folder, model_type, task, **({} if is_first else shallow(model_type)))
    model_class = getattr(modeling, TASKS[task].model_class)
    options = tiny_shapes(model_type, task) | {"disable_validation": not is_first}
    try:
        model = model_class.from_pretrained(folder, export=True, **options)
    except NeuronError as error:
        return " ".join(str(error).split())
    auto_class = getattr(transformers, TASKS[task].auto_class)
    compare_rows(model, auto_class.from_pretrained(folder, dtype=torch.float32).eval())
    model.loaded.close()
    return COMPARED


def compare_rows(model: Any, original: Any) -> None:
    """Compare a padded and split batch with the original's answer to each row."""
    signature = model.signature
    sizes = {axis: model.neuron_config.buckets(axis)[-1] for axis in model.neuron_config.axes}
    shorter = [axis for axis in signature.padded if axis not in ("height", "width")]
    sizes |= {axis: ROWS[axis] if axis in ROWS else sizes[axis] * 2 // 3 for axis in sizes if axis in (*ROWS, *shorter)}
    inputs = random_inputs(signature, sizes)
    pad_last_row(signature, inputs)
    actual = flatten(model(**inputs))
    options = call_options(original, attentions=False, hidden_states=False)
    contrastive = "text_batch_size" in sizes
    problems = []
    for row in range(1 if contrastive else sizes["batch_size"]):
        alone = inputs if contrastive else {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        real = dict(sizes)
        mask = alone.get("attention_mask")
        for axis in shorter if mask is not None and not contrastive else ():
            if axis == "num_choices":
                continue
            real[axis] = int(mask.reshape(-1, mask.shape[-1])[0].sum())
            alone = {name: cut(signature, name, tensor, axis, real[axis]) for name, tensor in alone.items()}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # WavLM's own
            expected = flatten(original(**alone, **options))
        assert set(actual) == set(expected)
        for name, tensor in expected.items():
            part = actual[name] if contrastive else actual[name][row : row + 1]
            for axis in signature.outputs[name]:
                if axis.axis in shorter:
                    part = part.narrow(axis.dim, 0, axis.size(real[axis.axis]))
            assert part.shape == tensor.shape, name
            error = compare(f"row {row} {name}", part.float(), tensor.float(), tolerance=FLOAT32_TOLERANCE)
            problems += [] if error.ok else [str(error)]
            assert tensor.float().std() > 1e-6 or tensor.numel() == 1, f"{name} is constant: nothing is compared"
    assert not problems, "\n".join(problems)


def cut(signature: Any, name: str, tensor: torch.Tensor, axis: str, size: int) -> torch.Tensor:
    axes = next(spec.axes for spec in signature.inputs if spec.name == name)
    return tensor.narrow(axes.index(axis), 0, size) if axis in axes else tensor


@pytest.mark.full(days=14)
@pytest.mark.parametrize(("model_type", "task"), CASES, ids=lambda value: value)
def test_model_matches_transformers_or_is_refused_as_listed(model_type, task, tmp_path):
    assert outcome(model_type, task, tmp_path) == read_support()[model_type][task]


def test_every_row_of_list_is_tested():
    listed = [(model_type, task) for model_type, tasks in read_support().items() for task in tasks]
    assert sorted(listed) == sorted([*GENERATING, *CASES])


def write_support() -> None:
    """Try every case and write the list."""
    result: dict[str, dict[str, str]] = {model_type: {task: COMPARED} for model_type, task in GENERATING}
    for model_type, task in CASES:
        with tempfile.TemporaryDirectory() as folder:
            result.setdefault(model_type, {})[task] = outcome(model_type, task, Path(folder))
    SUPPORT_FILE.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    write_support()
