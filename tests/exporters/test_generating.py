"""Shared behavior of exports of all generative models other than decoders, from cache to errors."""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronModelForImageTextToText, NeuronModelForSeq2SeqLM, main_export
from optimum_neuron.errors import ArtifactError, ModelError, ValidationError
from tests import image_text, seq2seq, speech
from tests.encoders import save_tiny_encoder
from tests.raising import raises
from tests.tiny import save_tiny

KINDS = {
    "seq2seq": (seq2seq.save_tiny_seq2seq, "bart", seq2seq.SHAPES, NeuronModelForSeq2SeqLM),
    "image_text": (image_text.save_tiny_image_text, "idefics3", image_text.SMALL, NeuronModelForImageTextToText),
}
"""How to save a tiny model, its name, shapes, and the class that loads its export."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def checkpoint(kind, tmp_path_factory):
    save, name, *_ = KINDS[kind]
    return save(tmp_path_factory.mktemp("checkpoint") / name, name)


@pytest.fixture(scope="module")
def export_result(kind, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "out"
    return main_export(checkpoint, folder, **KINDS[kind][2]).to_dict(), folder


def test_fine_tuned_weights_hit_cache(kind, export_result, tmp_path):
    save, name, shapes, _ = KINDS[kind]
    second = main_export(save(tmp_path / "tuned", name, seed=1), tmp_path / "second", **shapes).to_dict()
    assert second["family"] == export_result[0]["family"] and second["cache"]["value"] == "hit"


def test_difference_is_refused_with_its_statistics(kind, checkpoint, tmp_path):
    with pytest.raises(ValidationError) as error:
        main_export(checkpoint, tmp_path / "out", atol=0.0, **KINDS[kind][2])
    failed = [row["output"] for row in error.value.details["validation"] if not row["ok"]]
    assert failed[0].startswith(error.value.details["scenario"])
    assert any({"seq2seq": "sources of 8", "image_text": "with 2 images"}[kind] in output for output in failed)


@pytest.mark.full(days=7)
@pytest.mark.parametrize("name", ["bart", "idefics3", *speech.SHAPES])
def test_narrow_weights_meet_their_tolerance(name, tmp_path):
    if name in speech.SHAPES:
        # Not the spread ones: on some CPUs they exceed it in transformers' own bfloat16, too.
        folder, shapes = speech.save_tiny_speech(tmp_path / "model", name, spread=1.0), speech.SHAPES[name]
    else:
        save, _, shapes, _ = next(row for row in KINDS.values() if row[1] == name)
        folder = save(tmp_path / "model", name)
    report = main_export(folder, tmp_path / "out", **{**shapes, "torch_dtype": "bfloat16"}).to_dict()
    assert all(row["ok"] and row["max_abs_error"] > 0 for row in report["validation"])


@pytest.mark.parametrize("other", ["decoder", "encoder"])
def test_other_architectures_are_refused(kind, other, tmp_path):
    saved = save_tiny(tmp_path, "llama") if other == "decoder" else save_tiny_encoder(tmp_path, "bert", "fill-mask")
    task = {"seq2seq": "text2text-generation", "image_text": "image-text-to-text"}[kind]
    with raises(ModelError, task=task, model_type="llama" if other == "decoder" else "bert"):
        KINDS[kind][3].from_pretrained(saved, export=True, optlevel="1")


CHANGES = {
    "seq2seq": [('"decoder_sequence_length": 12', '"decoder_sequence_length": 13', "decoder_sequence_length=13 slots")],
    "image_text": [
        ('"image_size": 16', '"image_size": 24', "not 1 images of 24 x 24"),
        (f'"prefill_buckets": [\n      {image_text.LENGTH}', '"prefill_buckets": [\n      63', "prefill_63"),
    ],
}


def test_program_of_another_configuration_is_refused(kind, export_result):
    marker = export_result[1] / "neuron_config.json"
    text = marker.read_text()
    for old, new, problem in CHANGES[kind]:
        assert old in text
        marker.write_text(text.replace(old, new))
        with raises(ArtifactError) as error:
            KINDS[kind][3].from_pretrained(export_result[1])
        assert problem in " ".join(error.value.details["problems"])
    marker.write_text(text)
