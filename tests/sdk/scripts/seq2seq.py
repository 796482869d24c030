"""Encoder-decoders: translation with beams, summaries, transcripts, and a pipeline of each."""

import numpy as np
from optimum.neuron import NeuronModelForSeq2SeqLM, NeuronWhisperForConditionalGeneration, pipeline
from transformers import AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, AutoProcessor, AutoTokenizer

for model_id, text in [("acme/t5", "translate: how are you?"), ("acme/bart", "a long text to sum up.")]:
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    model = NeuronModelForSeq2SeqLM.from_pretrained(
        model_id, export=True, dynamic_batch_size=False, batch_size=1, sequence_length=64, num_beams=4
    )
    original = AutoModelForSeq2SeqLM.from_pretrained(model_id)
    inputs = tokenizer(text, return_tensors="pt")
    options = {"num_return_sequences": 2, "max_new_tokens": 10, "do_sample": False}
    outputs = model.generate(**inputs, **options)
    expected = original.generate(**inputs, num_beams=4, **options)
    assert tokenizer.batch_decode(outputs) == tokenizer.batch_decode(expected)

    model.save_pretrained("seq2seq_neuron")
    options = {"num_beams": 1, "max_new_tokens": 10, "do_sample": False}
    translate = pipeline("text2text-generation", "seq2seq_neuron")
    expected = tokenizer.decode(original.generate(**inputs, **options)[0], skip_special_tokens=True)
    assert translate(text, **options) == [{"generated_text": expected}]

model_id = "acme/whisper"
recording = np.random.default_rng(0).standard_normal(12_000, dtype=np.float32)
processor = AutoProcessor.from_pretrained(model_id)
model = NeuronWhisperForConditionalGeneration.from_pretrained(
    model_id, export=True, batch_size=1, sequence_length=40, inline_weights_to_neff=False
)
original = AutoModelForSpeechSeq2Seq.from_pretrained(model_id)
features = processor(recording, sampling_rate=16_000, return_tensors="pt").input_features
options = {"max_new_tokens": 12, "num_beams": 1}
predicted = model.generate(features, **options)
expected = original.generate(features, **options)
transcription = processor.batch_decode(predicted, skip_special_tokens=True)
assert transcription == processor.batch_decode(expected, skip_special_tokens=True) and transcription[0]

parts = {"tokenizer": processor.tokenizer, "feature_extractor": processor.feature_extractor}
transcribe = pipeline(task="automatic-speech-recognition", model=model, **parts)
result = transcribe({"array": recording, "sampling_rate": 16_000}, generate_kwargs=options)
assert result["text"] == transcription[0]
