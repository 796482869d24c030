"""A configuration and its export are counted alike, in every field: both come from the same graphs."""

from __future__ import annotations

import dataclasses

import pytest
from transformers import AutoConfig

from optimum_neuron.artifact import open_artifact
from optimum_neuron.exporters import main_export
from optimum_neuron.options.configuration import NEFF_FILE
from optimum_neuron.simulator import capture_model, estimate
from optimum_neuron.simulator.work import work_of_program
from optimum_neuron.sources import load_source
from tests.encoders import TINY
from tests.tiny import CONFIGS

TEXT = {"batch_size": 2, "sequence_length": 32}
IMAGES = {"batch_size": 2}
SINGLE_PASS = [
    ("bert", "text-classification", TEXT),
    ("deberta-v2", "feature-extraction", TEXT),
    ("vit", "image-classification", IMAGES),
    ("resnet", "image-classification", IMAGES),
]


def saved(tmp_path, model_type: str, sizes: dict):
    AutoConfig.for_model(model_type, **sizes).save_pretrained(tmp_path / "model")
    return tmp_path / "model", tmp_path / "exported"


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("model_type", "task", "shapes"), SINGLE_PASS, ids=[row[0] for row in SINGLE_PASS])
@pytest.mark.parametrize(("dtype", "auto_cast"), [("float32", "matmul"), ("bfloat16", "none")])
def test_single_pass_models_are_counted_as_their_exports(tmp_path, model_type, task, shapes, dtype, auto_cast):
    folder, exported = saved(tmp_path, model_type, TINY[model_type])
    options = {"task": task, "torch_dtype": dtype, "auto_cast": auto_cast, **shapes}
    main_export(folder, exported, instance_type="inf2.xlarge", **options)
    captured = capture_model(load_source(folder), instance_type="inf2.xlarge", **options).program
    compiled = open_artifact(exported / NEFF_FILE).program
    for graph in compiled.graphs:
        works = [work_of_program(program, graph, auto_cast=auto_cast).total for program in (captured, compiled)]
        assert works[0] == works[1] and works[0].product_flops > 0
    alone = estimate(folder, instance="inf2.xlarge", task=task, dtype=dtype, auto_cast=auto_cast, **shapes)
    after = estimate(exported, instance="inf2.xlarge")
    assert alone.memory == after.memory and alone.parts_ms == after.parts_ms
    assert alone.latency_ms == after.latency_ms


@pytest.mark.full(days=2)
def test_decoder_with_options_of_an_export_is_counted_as_its_export(tmp_path):
    folder, exported = saved(tmp_path, "llama", CONFIGS["llama"])
    options = {"sequence_length": 32, "quantization": "int8", "batch_size": 2, "tensor_parallel_size": 2}
    main_export(folder, exported, task="text-generation", instance_type="inf2.xlarge", **options)
    told = {"model": "", "assumptions": (), "divisible": None, "num_cores": 2}
    alone = estimate(folder, instance="inf2.xlarge", **options)
    after = estimate(exported, instance="inf2.xlarge")
    assert alone.num_cores.value == after.num_cores.value == 2  # for different reasons
    assert dataclasses.replace(alone, **told) == dataclasses.replace(after, **told)
