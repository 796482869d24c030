"""Models of one forward in float16 and bfloat16: exported, compared, and compared with the reference in that dtype.

What narrow dtypes meet differently: statistics of batch norms, norms of inputs, tables that modules compute or keep.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
import transformers

from optimum_neuron import modeling
from optimum_neuron.artifact import load as artifact_load
from optimum_neuron.errors import ValidationError
from optimum_neuron.exporters.validation import compare, statistics, validate
from optimum_neuron.kinds import Recorder, kind_of
from optimum_neuron.kinds.scenario import computing_in
from optimum_neuron.sources import TASKS
from tests.encoders import save_tiny_encoder, shallow, tiny_shapes

CASES = (
    ("mobilenet_v2", "image-classification", "bfloat16"),
    ("pp_lcnet", "image-classification", "float16"),
    ("swinv2", "image-classification", "float16"),
    ("wav2vec2-conformer", "automatic-speech-recognition", "bfloat16"),
    ("wav2vec2-bert", "automatic-speech-recognition", "float16"),
)


def exported(folder, model_type, task, dtype):
    save_tiny_encoder(folder, model_type, task, **shallow(model_type))
    model_class = getattr(modeling, TASKS[task].model_class)
    return model_class.from_pretrained(folder, export=True, **tiny_shapes(model_type, task), torch_dtype=dtype)


@pytest.mark.full(days=5)
@pytest.mark.parametrize(("model_type", "task", "dtype"), CASES)
def test_exports_are_compared_in_narrow_dtypes(model_type, task, dtype, tmp_path):
    model = exported(tmp_path, model_type, task, dtype)
    assert all(error.ok and error.max_abs_error > 0 for error in model.prepared.validation)
    reference = getattr(transformers, TASKS[task].auto_class).from_pretrained(tmp_path, dtype=torch.float32).eval()
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    kind, recorder = kind_of(task, model_type), Recorder(model.loaded)
    scenarios = kind.scenarios(recorder, reference, model.prepared.metadata, model.neuron_config)
    # Nothing passes at first, so every result is compared with the reference in the dtype.
    errors = validate(scenarios, recorder, reference, tolerance=lambda largest: 0.0, dtype=getattr(torch, dtype))
    assert errors and all(error.ok for error in errors)
    assert all(torch.equal(value, before[name]) for name, value in reference.state_dict().items())


@pytest.mark.full(days=4)
def test_statistics_of_norms_are_compared(tmp_path, monkeypatch):
    real = artifact_load.bind_weights

    def bind(*arguments):
        bound = real(*arguments)
        wrong = {name: -value for name, value in bound.tensors.items() if name.endswith("running_mean")}
        assert wrong
        return dataclasses.replace(bound, tensors=bound.tensors | wrong)

    monkeypatch.setattr(artifact_load, "bind_weights", bind)
    monkeypatch.setattr(statistics, "_versions", lambda: {"package": "damaged"})
    with pytest.raises(ValidationError) as error:
        exported(tmp_path, "mobilenet_v2", "image-classification", "bfloat16")
    assert error.value.details["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_reference_in_a_narrow_dtype_is_that_of_transformers(dtype, tmp_path):
    """transformers' own loader casts the whole model; both round alike, up to the order of their roundings."""
    from transformers import AutoModelForImageClassification

    folder = save_tiny_encoder(tmp_path, "mobilenet_v2", "image-classification")
    wide = AutoModelForImageClassification.from_pretrained(folder, dtype=torch.float32).eval()
    narrow = AutoModelForImageClassification.from_pretrained(folder, dtype=dtype).eval()
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact, expected = wide(pixels).logits, narrow(pixels.to(dtype)).logits.float()
        with computing_in(wide, dtype):
            actual = wide(pixels).logits.float()
    rounding = compare("", expected, exact, tolerance=0.0).max_abs_error
    assert 0 < compare("", actual, exact, tolerance=0.0).max_abs_error <= 2 * rounding


def test_reference_computes_in_its_own_dtype_afterwards(tmp_path):
    """It keeps a table of positions from call to call, in the dtype of its input."""
    from transformers import AutoModelForCTC

    folder = save_tiny_encoder(tmp_path, "wav2vec2-conformer", "automatic-speech-recognition")
    model = AutoModelForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    samples = torch.randn(1, 400, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(samples).logits
        with computing_in(model, torch.bfloat16):
            assert not torch.equal(model(samples).logits.float(), before)
        assert torch.equal(model(samples).logits, before)
