"""From a shell and from Python, the task of a model that transcribes is inferred, and its lengths are checked."""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronModelForSpeechSeq2Seq, main_export
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.kinds.encoder_decoder import Source
from optimum_neuron.sources import architectures_of, find_task, task_of
from tests.raising import raises
from tests.speech import FRAMES, SHAPES, TARGET, save_tiny_speech
from tests.tiny import write_config

TASK = "automatic-speech-recognition"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    return {name: save_tiny_speech(folder / name, name) for name in SHAPES}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("words", [[], ["--task", TASK]], ids=["inferred", "named"])
def test_command_line_export(cli, checkpoints, tmp_path, words):
    lengths = ["--audio_sequence_length", "3000,6000", "--decoder_sequence_length", "12"]
    words = ["-m", str(checkpoints["moonshine"]), *words, *lengths, "-O1", "--json", str(tmp_path / "o")]
    result = cli("export", "neuron", *words)
    assert result.code == 0, result.stderr
    assert result.json["task"]["value"] == TASK
    names = [graph["name"] for graph in result.json["graphs"]]
    assert names == ["encode_3000", "prefill_3000", "encode_6000", "prefill_6000", "decode"]
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(tmp_path / "o")
    assert (model.batch_size, model.source_buckets, model.decoder_sequence_length) == (1, (3000, 6000), 12)


@pytest.mark.full(days=2)
def test_check_counts_compiled_graphs(cli, checkpoints):
    result = cli("neuron", "check", str(checkpoints["whisper"]), "--json")
    assert result.code == 0, result.stderr
    assert [graph["name"] for graph in result.json["graphs"]] == [f"encode_{FRAMES}", f"prefill_{FRAMES}", "decode"]


def test_architectures_are_listed(cli):
    result = cli("neuron", "models", "--task", TASK, "--quiet").stdout.split()
    assert {"wav2vec2", "whisper", "moonshine"} <= set(result)


@pytest.mark.parametrize(
    ("name", "options", "details"),
    [
        ("whisper", {"nb_max_frames": 30}, {"option": "nb_max_frames", "limit": FRAMES}),
        ("whisper", {"audio_sequence_length": 6000}, {"option": "audio_sequence_length"}),
        ("moonshine", {"nb_max_frames": 40}, {"option": "nb_max_frames"}),
        ("moonshine", {"decoder_sequence_length": TARGET + 1}, {"option": "decoder_sequence_length", "limit": TARGET}),
        ("whisper", {"sequence_length": TARGET + 1}, {"option": "decoder_sequence_length", "limit": TARGET}),
        ("moonshine", {"output_attentions": True}, {"option": "output_attentions"}),
    ],
    ids=str,
)
def test_unsupported_lengths_are_refused(checkpoints, name, options, details):
    with pytest.raises(ConfigError) as error:
        NeuronModelForSpeechSeq2Seq.from_pretrained(checkpoints[name], export=True, optlevel="1", **options)
    assert {key: error.value.details[key] for key in details} == details


def test_architecture_with_other_inputs_is_refused(tmp_path):
    architectures = ["Speech2TextForConditionalGeneration"]
    folder = write_config(tmp_path / "s", model_type="speech_to_text", architectures=architectures)
    with raises(ModelError, task="automatic-speech-recognition", model_type="speech_to_text"):
        main_export(folder, tmp_path / "out", optlevel="1")


@pytest.mark.parametrize("length", [894, 895, 1278, 1279, 16000])
def test_states_match_reference_model(length):
    from transformers import MoonshineConfig, MoonshineModel

    source = Source(name="input_values", axis="audio_sequence_length", window=895, stride=384)
    model = MoonshineModel(MoonshineConfig(hidden_size=8, num_hidden_layers=1, intermediate_size=8))
    assert source.num_states(length) == max(model.encoder._get_feat_extract_output_lengths(length), 0)


def test_task_of_two_kinds():
    assert find_task(TASK, "whisper").model_class == "NeuronModelForSpeechSeq2Seq"
    assert {find_task(TASK, one).model_class for one in ("wav2vec2", "code of a checkpoint")} == {"NeuronModelForCTC"}
    assert {"whisper", "wav2vec2"} <= architectures_of(TASK).keys()
    assert task_of("WhisperForConditionalGeneration") == task_of("HubertForCTC") == TASK
