"""Recordings of unequal lengths in one batch: same results as alone, unlike a reference model with group norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from optimum_neuron import pipeline
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.processors import save_encoder_processors

TASK = "automatic-speech-recognition"
LONG = np.random.RandomState(0).randn(900).astype("float32")
SHORT = LONG[:500]
NORMS = {"group": {}, "layer": {"feat_extract_norm": "layer", "do_stable_layer_norm": True}}


@pytest.fixture(scope="module", params=NORMS)
def pipelines(request, tmp_path_factory, environment):
    """Whether statistics are per frame, and the pipelines of the compiled and the reference model."""
    folder = save_tiny_encoder(tmp_path_factory.mktemp("ctc") / "wav2vec2", "wav2vec2", TASK, **NORMS[request.param])
    save_encoder_processors(folder, TASK)
    compiled_pipe = pipeline(TASK, folder, export=True, **tiny_shapes("wav2vec2", TASK))
    return request.param == "layer", compiled_pipe, transformers.pipeline(TASK, str(folder))


def test_short_recording_in_batch_has_unbatched_logits(pipelines):
    is_by_frame, compiled_pipe, original = pipelines[0], pipelines[1], pipelines[2].model.eval()
    extract, options = compiled_pipe.feature_extractor, {"sampling_rate": 16_000, "return_tensors": "pt"}
    batch = extract([LONG, SHORT], padding=True, return_attention_mask=True, **options)
    with torch.no_grad():
        alone = original(**extract(SHORT, return_attention_mask=True, **options)).logits[0]
        expected = original(**batch).logits[1]
    actual = compiled_pipe.model(**batch).logits[1]
    torch.testing.assert_close(actual[: len(alone)], alone, atol=1e-4, rtol=0)
    if is_by_frame:
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)
    else:
        assert (expected[: len(alone)] - alone).abs().max() > 0.1  # its statistics count the padding


def test_batched_transcripts_start_like_unbatched_ones(pipelines):
    """Behind them come the letters of padded frames, which transformers' pipeline decodes too."""
    is_by_frame, compiled_pipe, reference_pipe = pipelines
    recordings = [LONG, SHORT]
    batched = [answer["text"] for answer in compiled_pipe([one.copy() for one in recordings], batch_size=2)]
    alone = [reference_pipe(one.copy())["text"] for one in recordings]
    assert [text[: len(words)] for text, words in zip(batched, alone, strict=True)] == alone
    if is_by_frame:
        assert batched == [
            answer["text"] for answer in reference_pipe([one.copy() for one in recordings], batch_size=2)
        ]
