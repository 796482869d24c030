"""`/v1/audio/transcriptions` through OpenAI's client, against transformers' own pipeline."""

from __future__ import annotations

import io

import numpy as np
import openai
import pytest
import transformers

from optimum_neuron.serving import recordings
from optimum_neuron.serving.runners.speech import prompt_ids, subtitles

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("python_multipart")
pytest.importorskip("soxr")

RATE = 16_000


def recording(seconds=0.9, *, form="WAV", rate=RATE):
    samples = np.random.default_rng(0).normal(0, 0.1, round(seconds * rate)).astype(np.float32)
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype="FLOAT" if form == "WAV" else None)
    return samples, file.getvalue()


def transcribe(client, raw, **settings):
    return client.audio.transcriptions.create(**{"model": "whisper", "file": ("a.wav", raw)} | settings)


@pytest.fixture(scope="module")
def original(checkpoints):
    folder = checkpoints["whisper"][0]
    return transformers.pipeline("automatic-speech-recognition", str(folder), dtype="float32")


def test_texts_are_those_of_transformers(client, original):
    samples, raw = recording()
    options = {"num_beams": 1, "do_sample": False, "task": "transcribe"}
    expected = original(samples, generate_kwargs=options)["text"].strip()
    assert transcribe(client, raw).text == expected
    assert transcribe(client, raw, response_format="text") == expected + "\n"
    german = original(samples, generate_kwargs=options | {"language": "german"})["text"].strip()
    assert transcribe(client, raw, language="de").text == german


def test_times_are_in_all_forms(client, original):
    samples, raw = recording(1.4)  # longer than the window of one second
    options = {"num_beams": 1, "do_sample": False, "task": "transcribe"}
    expected = original(samples, return_timestamps=True, return_language=True, generate_kwargs=options)
    answer = transcribe(client, raw, response_format="verbose_json")
    assert answer.text == expected["text"].strip() and answer.duration == pytest.approx(1.4)
    assert [one.text for one in answer.segments] == [one["text"] for one in expected["chunks"]]
    assert answer.segments[-1].end <= answer.duration
    both = transcribe(client, raw, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert both.words and both.words[0].start <= both.words[-1].end and len(both.segments) == len(answer.segments)
    short = recording(0.5)[1]
    only = transcribe(client, short, response_format="verbose_json", timestamp_granularities=["word"])
    assert only.words and only.segments is None
    assert transcribe(client, short, response_format="srt").startswith("1\n00:00:")
    assert transcribe(client, short, response_format="vtt").startswith("WEBVTT\n\n00:00:")


def test_recordings_have_many_forms_and_rates(client):
    _, raw = recording(form="FLAC", rate=8000)
    assert transcribe(client, raw).text
    _, raw = recording(form="OGG")
    assert transcribe(client, raw).text


def test_a_model_without_times_has_one_segment(client):
    _, raw = recording()
    answer = transcribe(client, raw, model="moonshine", response_format="verbose_json")
    assert [(one.start, one.end) for one in answer.segments] == [(0.0, pytest.approx(0.9))]
    for wrong in ({"language": "de"}, {"prompt": "w3"}):
        with pytest.raises(openai.BadRequestError):
            transcribe(client, raw, model="moonshine", **wrong)


def test_translations_name_their_task(client, original):
    samples, raw = recording()
    options = {"num_beams": 1, "do_sample": False, "task": "translate"}
    expected = original(samples, generate_kwargs=options)["text"].strip()
    with pytest.warns(DeprecationWarning):  # OpenAI's client calls them so
        assert client.audio.translations.create(model="whisper", file=("a.wav", raw)).text == expected


@pytest.mark.parametrize(
    "change",
    [
        {"file": ("a.wav", b"no sound")},
        {"file": ("a.wav", b"")},
        {"file": ("a.wav", recording(0)[1])},
        {"language": "fr"},
        {"temperature": 3},
        {"response_format": "mp3"},
        {"timestamp_granularities": ["word"]},
        {"model": "moonshine", "file": ("a.wav", recording(2)[1])},
        {"extra_body": {"speed": 2}},
    ],
    ids=lambda change: str(change)[:30],
)
def test_bad_requests_are_errors_of_the_client(client, change):
    with pytest.raises(openai.BadRequestError):
        transcribe(client, **{"raw": recording()[1], **change})


WHISPER_SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|startofprev|>"]


@pytest.fixture(scope="module")
def whisper_tokenizer():
    """Whisper's own class with letters, its special tokens, and its times, which are added tokens but not special."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = transformers.WhisperTokenizer(
        vocab={token: index for index, token in enumerate([*letters, *WHISPER_SPECIAL])}, merges=[]
    )
    tokenizer.add_special_tokens({"extra_special_tokens": WHISPER_SPECIAL})
    tokenizer.add_tokens(["<|0.00|>", "<|0.02|>"])
    return tokenizer


@pytest.mark.parametrize("text", ["a b", " Zoë's <|x|>\n", "", "<", "\u202e\U0001f600"])
def test_prompts_are_those_of_whisper(text, whisper_tokenizer):
    expected = whisper_tokenizer.get_prompt_ids(text, return_tensors="pt")
    assert prompt_ids(whisper_tokenizer, text).tolist() == expected.tolist()


@pytest.mark.parametrize("token", [*WHISPER_SPECIAL, "<|0.02|>"])
def test_special_tokens_of_prompts_stay_text(token, whisper_tokenizer):
    with pytest.raises(ValueError, match="special token"):  # transformers' own method refuses them
        whisper_tokenizer.get_prompt_ids(f"a{token}b")
    start, *ids = prompt_ids(whisper_tokenizer, f"a{token}b").tolist()
    assert start == whisper_tokenizer.convert_tokens_to_ids("<|startofprev|>")
    assert not {*ids} & {*whisper_tokenizer.added_tokens_decoder}
    assert whisper_tokenizer.backend_tokenizer.decode(ids).strip() == f"a{token}b"


@pytest.mark.parametrize("prompt", ["w3 w4", "<|startofprev|> w3 <|0.04|>", "w3 " * 3000, " "], ids=lambda x: x[:9])
def test_a_prompt_of_any_text_has_an_answer(client, prompt):
    try:
        assert transcribe(client, recording()[1], prompt=prompt).text is not None
    except openai.BadRequestError as error:
        assert error.param == "prompt"


def test_a_body_that_is_no_form_is_an_error_of_the_client(http):
    path = "/v1/audio/transcriptions"
    assert http.post(path, json={"model": "whisper", "file": "x"}).status_code == 400
    head = {"Content-Type": "multipart/form-data; boundary=x"}
    for raw in (b"", b"--x\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n"):
        assert http.post(path, content=raw, headers=head).status_code == 400


def test_small_files_of_long_recordings_are_errors_of_the_client(client, monkeypatch):
    file = io.BytesIO()
    soundfile.write(file, np.zeros(4_000_000, np.int16), 1000, format="FLAC")
    assert len(file.getvalue()) < 100_000
    with pytest.raises(openai.BadRequestError) as error:
        transcribe(client, file.getvalue())
    assert error.value.param == "file"
    monkeypatch.setattr(recordings, "_MOST_FRAMES", 10_000)
    with pytest.raises(openai.BadRequestError) as error:
        transcribe(client, recording()[1])
    assert error.value.param == "file"


def test_a_rate_of_zero_is_an_error_of_the_client(client):
    raw = bytearray(recording(0.1)[1])
    raw[24:28] = bytes(4)
    with pytest.raises(openai.BadRequestError):
        transcribe(client, bytes(raw))


def test_subtitles_have_the_clock_of_their_form():
    segments = [{"start": 0.5, "end": 3723.0456, "text": " a --> b\nc"}]
    assert subtitles(segments, "srt") == "1\n00:00:00,500 --> 01:02:03,046\na -> b c\n\n"
    assert subtitles(segments, "vtt") == "WEBVTT\n\n00:00:00.500 --> 01:02:03.046\na -> b c\n\n"
