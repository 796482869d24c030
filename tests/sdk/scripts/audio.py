"""Recordings: classes, letters, speakers of each frame, and vectors of voices."""

import numpy as np
import torch
from optimum.neuron import (
    NeuronModelForAudioClassification,
    NeuronModelForAudioFrameClassification,
    NeuronModelForCTC,
    NeuronModelForXVector,
)
from transformers import (
    AutoFeatureExtractor,
    AutoModelForAudioClassification,
    AutoModelForAudioFrameClassification,
    AutoModelForAudioXVector,
    AutoModelForCTC,
    AutoProcessor,
)

rate = 16_000
recording = np.random.default_rng(0).standard_normal(900, dtype=np.float32)
input_shapes = {"batch_size": 1, "audio_sequence_length": 1200}
exact = {"atol": 1e-4, "rtol": 1e-4}

# The class of a recording.
feature_extractor = AutoFeatureExtractor.from_pretrained("acme/hubert-keywords")
model = NeuronModelForAudioClassification.from_pretrained("acme/hubert-keywords", export=True, **input_shapes)
inputs = feature_extractor(recording, sampling_rate=rate, return_tensors="pt")
logits = model(**inputs).logits
original = AutoModelForAudioClassification.from_pretrained("acme/hubert-keywords")
with torch.no_grad():
    expected = original(**inputs).logits
label = model.config.id2label[torch.argmax(logits, dim=-1).item()]
assert label == original.config.id2label[torch.argmax(expected, dim=-1).item()]
torch.testing.assert_close(logits, expected, **exact)

# Transcript.
processor = AutoProcessor.from_pretrained("acme/wav2vec2-ctc")
model = NeuronModelForCTC.from_pretrained("acme/wav2vec2-ctc", export=True, **input_shapes)
inputs = processor(recording, sampling_rate=rate, return_tensors="pt", padding="longest")
logits = model(**inputs).logits
with torch.no_grad():
    expected = AutoModelForCTC.from_pretrained("acme/wav2vec2-ctc")(inputs.input_values).logits
transcription = processor.batch_decode(torch.argmax(logits, dim=-1))
assert transcription == processor.batch_decode(torch.argmax(expected, dim=-1)) and transcription[0]

# Who speaks when.
feature_extractor = AutoFeatureExtractor.from_pretrained("acme/wavlm-diarization")
model = NeuronModelForAudioFrameClassification.from_pretrained("acme/wavlm-diarization", export=True, **input_shapes)
inputs = feature_extractor(recording, sampling_rate=rate, return_tensors="pt")
logits = model(**inputs).logits
original = AutoModelForAudioFrameClassification.from_pretrained("acme/wavlm-diarization")
with torch.no_grad():
    expected = original(inputs.input_values).logits
assert torch.equal(torch.sigmoid(logits[0]) > 0.5, torch.sigmoid(expected[0]) > 0.5)
torch.testing.assert_close(logits, expected, **exact)

# Return whether two recordings are of one speaker.
feature_extractor = AutoFeatureExtractor.from_pretrained("acme/wavlm-speakers")
input_shapes = {"batch_size": 2, "audio_sequence_length": 1200}
model = NeuronModelForXVector.from_pretrained("acme/wavlm-speakers", export=True, **input_shapes)
inputs = feature_extractor([recording, -recording[::-1]], sampling_rate=rate, return_tensors="pt", padding=True)
embeddings = torch.nn.functional.normalize(model(**inputs).embeddings, dim=-1)
with torch.no_grad():
    expected = AutoModelForAudioXVector.from_pretrained("acme/wavlm-speakers")(inputs.input_values).embeddings
similarity = torch.nn.CosineSimilarity(dim=-1)(embeddings[0], embeddings[1])
torch.testing.assert_close(similarity, torch.nn.CosineSimilarity(dim=-1)(expected[0], expected[1]), **exact)
