"""Folders that were exported for hardware: made here as Optimum Neuron lays them out, and refused with a way out."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from optimum_neuron import (
    NeuronConfig,
    NeuronModelForCausalLM,
    NeuronModelForMaskedLM,
    NeuronModelForSeq2SeqLM,
    main_export,
    pipeline,
)
from optimum_neuron.errors import ArtifactError
from optimum_neuron.exporters import inspect_export
from optimum_neuron.exporters.vendor_folder import read_vendor_export
from tests import seq2seq, speech
from tests.encoders import save_tiny_encoder, tiny_encoder_config
from tests.tiny import tiny_config

TRACED = {"auto_cast": "matmul", "auto_cast_type": "bf16", "instance_type": "trn2", "optlevel": "1"}
TRACED |= {"compiler_type": "neuronx-cc", "compiler_version": "2.20", "dynamic_batch_size": False}
TRACED |= {"float_dtype": "fp32", "int_dtype": "int64", "inline_weights_to_neff": True, "output_hidden_states": True}
TRACED |= {"static_batch_size": 2, "static_sequence_length": 16, "tensor_parallel_size": 1}


def torchscript(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/code/__torch__.py", "")


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def traced(folder: Path) -> Path:
    torchscript(folder / "model.neuron")
    config = tiny_encoder_config("bert").to_dict()
    write(folder / "config.json", config | {"neuron": {**TRACED, "task": "fill-mask", "model_type": "bert"}})
    return folder


def decoder(folder: Path, **changes: Any) -> Path:
    write(folder / "config.json", tiny_config("llama").to_dict())
    record = {"_serialized_key": "NxDNeuronConfig", "neuronxcc_version": "2.20", "optimum_neuron_version": "0.4.5"}
    record |= {"checkpoint_id": "org/llama", "checkpoint_revision": "main", "torch_dtype": "bfloat16"}
    record |= {"batch_size": 4, "sequence_length": 48, "target": "trn1", "tp_degree": 8}
    write(folder / "neuron_config.json", record | changes)
    torchscript(folder / "model.pt")
    return folder


def encoder_decoder(folder: Path) -> Path:
    for part in ("encoder", "decoder"):
        torchscript(folder / part / "model.neuron")
        facts = {**TRACED, "task": "text2text-generation", "model_type": "t5", "static_num_beams": 4}
        write(folder / part / "config.json", {"model_type": "t5", "neuron": facts})
    write(folder / "config.json", {"model_type": "t5", "_name_or_path": "org/t5", "is_encoder_decoder": True})
    return folder


USES = {
    "encoder": (traced, NeuronModelForMaskedLM, "fill-mask"),
    "decoder": (decoder, NeuronModelForCausalLM, "text-generation"),
    "seq2seq": (encoder_decoder, NeuronModelForSeq2SeqLM, "text2text-generation"),
}


@pytest.mark.parametrize("kind", USES)
def test_vendor_folder_errors_name_export_command(kind, tmp_path):
    make, model_class, task = USES[kind]
    folder = make(tmp_path / "vendor")
    uses = [
        lambda: model_class.from_pretrained(folder),
        lambda: model_class.from_pretrained(folder, export=True),
        lambda: model_class.from_pretrained(folder, export=False),
        lambda: pipeline(task, folder),
        lambda: inspect_export(folder),
        lambda: main_export(folder, tmp_path / "out"),
        lambda: NeuronConfig.from_pretrained(folder),
    ]
    for use in uses:
        with pytest.raises(ArtifactError) as excinfo:
            use()
        export = excinfo.value.details["export"]
        assert (excinfo.value.details["folder"], export["task"]) == (str(folder), task)
        assert f"{model_class.__name__}.from_pretrained(" in str(excinfo.value)
    assert not (tmp_path / "out").exists()


def test_options_match_the_record(tmp_path):
    result = read_vendor_export(traced(tmp_path / "traced"))
    assert result is not None and result.checkpoint is None
    same = (
        *("auto_cast", "auto_cast_type", "instance_type", "optlevel", "output_hidden_states"),
        "tensor_parallel_size",
    )
    assert result.options == {"batch_size": 2, "sequence_length": 16, **{name: TRACED[name] for name in same}}
    result = read_vendor_export(decoder(tmp_path / "decoder"))
    assert result is not None and (result.checkpoint, result.revision, result.num_cores) == ("org/llama", "main", 8)
    shapes = {"batch_size": 4, "sequence_length": 48, "torch_dtype": "bfloat16", "instance_type": "trn1"}
    assert result.options == shapes
    result = read_vendor_export(encoder_decoder(tmp_path / "t5"))
    assert result is not None and (result.checkpoint, result.options["num_beams"]) == ("org/t5", 4)


def test_suggested_call_works(tmp_path):
    result = read_vendor_export(traced(tmp_path / "traced"))
    assert result is not None
    checkpoint = save_tiny_encoder(tmp_path / "bert", "bert", "fill-mask")
    call = result.call.replace("'CHECKPOINT'", repr(str(checkpoint)))
    model = eval(call, {"NeuronModelForMaskedLM": NeuronModelForMaskedLM})
    assert model.input_static_shapes == {"batch_size": 2, "sequence_length": 16}


def test_whispers_length_has_our_name(tmp_path):
    folder = speech.save_tiny_speech(tmp_path / "whisper", "whisper")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    torchscript(folder / "encoder" / "model.neuron")
    facts = {**TRACED, "task": "automatic-speech-recognition", "model_type": "whisper"}
    write(folder / "decoder" / "config.json", {"neuron": facts})
    result = read_vendor_export(folder)
    assert result is not None and result.options["decoder_sequence_length"] == 16


@pytest.mark.parametrize("text", ["{", "[]", '{"neuron": {"task": "unknown"}}'], ids=["not JSON", "a list", "a task"])
def test_damaged_record_is_read_partially(text, tmp_path):
    result = read_vendor_export(decoder(tmp_path / "decoder", tp_degree="eight"))
    assert result is not None and result.num_cores == 1
    folder = traced(tmp_path / "traced")
    (folder / "config.json").write_text(text)
    result = read_vendor_export(folder)
    assert result is not None and (result.task, result.options) == (None, {})


def test_other_folders_are_not_vendor_folders(export_folder, checkpoint, tmp_path):
    assert read_vendor_export(export_folder) is None and read_vendor_export(checkpoint) is None
    assert read_vendor_export(seq2seq.save_tiny_seq2seq(tmp_path, "t5")) is None
