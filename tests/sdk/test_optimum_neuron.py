"""Names and modules of Optimum Neuron: each can be imported, and has the expected type."""

from __future__ import annotations

import importlib
import tomllib

import pytest
import torch
from safetensors.torch import load_file, save_file

import optimum_neuron
from optimum_neuron.base.doors import ON_IMPORT, Missing
from optimum_neuron.compiler import COMPILER_VERSION
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.version import __version__
from tests.tree import ROOT

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")
from optimum.neuron._names import ABSENT, NAMES, TWINS  # noqa: E402

NEEDS_PEFT = [module for module, names in NAMES.items() if any(target.startswith("peft:") for target in names.values())]


@pytest.mark.parametrize("folder", ["sdk", "sdk_vllm", "sdk_xla"])
def test_versions_of_all_distributions_are_same(folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    extra = "[serve]" if folder == "sdk_vllm" else ""
    assert f"optimum-neuron-sim{extra}=={__version__}" in project["dependencies"]


@pytest.mark.parametrize(
    "folder", ["optimum", "optimum/commands", "optimum/commands/register", "sdk/optimum", "sdk/optimum/exporters"]
)
def test_namespace_folders_hold_no_init(folder):
    assert not (ROOT / folder / "__init__.py").exists()


def test_every_optimum_neuron_name_is_exported():
    module = importlib.import_module("optimum.neuron")
    for name in (*optimum_neuron.__all__, *optimum_neuron.TRAINING_NAMES):
        assert name in dir(module) and NAMES["optimum.neuron"][name].endswith(f":{name}")
    for name in optimum_neuron.__all__:
        ours, theirs = getattr(optimum_neuron, name), getattr(module, name)
        assert theirs is ours or name == "pipeline" or (issubclass(theirs, ours) and issubclass(ours, theirs))
    assert set(module.__all__) >= set(optimum_neuron.__all__)
    assert not set(module.__all__) & {*optimum_neuron.TRAINING_NAMES}


@pytest.mark.parametrize("module", NAMES)
def test_every_module_imports_and_has_its_names(module):
    if module in NEEDS_PEFT:
        pytest.importorskip("peft")
    loaded = importlib.import_module(module)
    names = sorted(set(NAMES[module]) - {ON_IMPORT})
    assert dir(loaded) == names
    for name in names:
        if name not in (*optimum_neuron.TRAINING_NAMES, *optimum_neuron.DIFFUSION_NAMES):  # they need an extra
            getattr(loaded, name)


def test_names_after_architecture_are_classes_of_tasks():
    module = importlib.import_module("optimum.neuron.modeling")
    for name, actual in TWINS.items():
        assert getattr(module, name) is getattr(importlib.import_module("optimum.neuron"), actual)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("optimum.neuron.pipelines", "NeuronStableDiffusionPipelineMixin", "NeuronStableDiffusionPipeline"),
        ("optimum.neuron.vllm", "OptimumNeuronWorker", "serve"),
        ("optimum.neuron.models.training", "FusedLinearsSpec", "consolidate"),
    ],
)
def test_missing_feature_is_an_error_on_use(module, name, hint):
    absent = getattr(importlib.import_module(module), name)
    assert isinstance(absent, type) and absent is getattr(importlib.import_module(module), name)
    for use in (absent, lambda: absent.from_pretrained("a")):
        with pytest.raises(ModelError) as excinfo:
            use()
        assert excinfo.value.details == {"name": name, "module": module} and hint in str(excinfo.value)


def test_table_of_missing_features_is_used_and_complete():
    missing = {name for rows in NAMES.values() for name, target in rows.items() if isinstance(target, Missing)}
    assert missing == set(ABSENT)


def test_unknown_name_is_attribute_error_of_this_module():
    with pytest.raises(AttributeError, match=r"module 'optimum\.neuron' has no attribute 'NeuronModelForCausalLn'"):
        importlib.import_module("optimum.neuron").NeuronModelForCausalLn  # noqa: B018


def test_diffusion_classes_and_groups_of_arguments():
    pytest.importorskip("diffusers")
    from optimum.neuron import NeuronFluxPipeline, NeuronStableDiffusionControlNetPipeline
    from optimum.neuron.utils import InputShapesArguments, IPAdapterArguments, LoRAAdapterArguments, constant

    from optimum_neuron.sources.pipelines import PipelineAdditions

    assert issubclass(NeuronFluxPipeline, optimum_neuron.NeuronFluxPipeline)
    assert issubclass(NeuronStableDiffusionControlNetPipeline, optimum_neuron.NeuronDiffusionPipelineBase)
    groups = {
        "lora_args": LoRAAdapterArguments(model_ids="a", scales=0.5),
        "ip_adapter_args": IPAdapterArguments(model_id="b", weight_name="c"),
    }
    assert PipelineAdditions.from_options(groups).to_dict() == {
        "lora_model_ids": ["a"],
        "lora_scales": [0.5],
        "ip_adapter_id": ["b"],
        "ip_adapter_weight_name": ["c"],
    }
    assert InputShapesArguments(height=512).height == 512
    assert constant.DIFFUSION_MODEL_VAE_DECODER_NAME == "vae_decoder"


def test_duplicate_export_option_is_an_error(tmp_path):
    from optimum.exporters.neuron import main_export

    with pytest.raises(ConfigError) as excinfo:
        main_export("acme/bert", tmp_path, {"optlevel": "1", "auto_cast": "all"}, optlevel="2", auto_cast="all")
    assert excinfo.value.details == {"options": ["optlevel"]}


def test_questions_about_process_and_machine(monkeypatch):
    from optimum.neuron.models.inference.backend.neuron_device_memory import get_neuron_device_indices
    from optimum.neuron.utils import import_utils, is_precompilation, system
    from optimum.neuron.utils.cache_utils import get_num_neuron_cores
    from optimum.neuron.utils.instance import current_instance_type
    from optimum.neuron.utils.system import cores_per_device
    from optimum.neuron.utils.training_utils import is_logging_process

    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn1.32xlarge")
    assert (current_instance_type(), cores_per_device(), get_num_neuron_cores()) == ("trn1", 2, 32)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-3")
    assert get_num_neuron_cores() == 4 and get_neuron_device_indices() == {0, 1}
    assert system.get_instance_name() == "trn1.32xlarge" and system.get_neuron_devices_count() == 16
    assert is_logging_process() and not is_precompilation()
    monkeypatch.setenv("NEURON_EXTRACT_GRAPHS_ONLY", "1")
    assert is_precompilation()
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn2.48xlarge")
    assert (system.get_neuron_devices_count(), cores_per_device()) == (16, 4)  # physical cores in pairs
    monkeypatch.setenv("OPTIMUM_NEURON_XLA", "0")
    assert import_utils.is_torch_neuronx_available() and not import_utils.is_torch_xla_available()
    assert import_utils.is_package_available("torch")


def test_compilation_target_is_aligned(monkeypatch):
    from optimum.neuron.utils.instance import (
        align_compilation_target,
        get_default_compilation_target,
        normalize_instance_type,
    )

    variable = "NEURON_PLATFORM_TARGET_OVERRIDE"
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "trn1.2xlarge")
    monkeypatch.setenv(variable, "")  # so that it is restored
    assert get_default_compilation_target() == normalize_instance_type("trn1") == "trn1"
    with pytest.raises(ConfigError) as excinfo:
        align_compilation_target("trn2", override=False)
    assert excinfo.value.details == {"target": "trn2", "instance": "trn1.2xlarge"}
    assert align_compilation_target("trn2", override=True) == get_default_compilation_target() == "trn2"
    assert align_compilation_target("trn1", override=False) == "trn2"
    with pytest.raises(ConfigError):
        normalize_instance_type("p5")


def test_words_of_command_lines_that_are_true():
    from optimum.neuron.utils.misc import string_to_bool

    assert [string_to_bool(word) for word in ("Yes", "1", "f", "no", True)] == [True, True, False, False, True]
    with pytest.raises(ConfigError):
        string_to_bool("maybe")


def test_pipelines_are_listed_as_transformers_does():
    from optimum.neuron.pipelines.transformers.base import NEURONX_SUPPORTED_TASKS, pipeline
    from transformers.pipelines import SUPPORTED_TASKS

    from optimum_neuron.modeling import NeuronModel

    assert pipeline.__name__ == "pipeline"
    for name, row in NEURONX_SUPPORTED_TASKS.items():
        assert row.keys() == {"impl", "class", "default", "type"}
        assert all(issubclass(model, NeuronModel) for model in row["class"])
        if name in SUPPORTED_TASKS:
            theirs = SUPPORTED_TASKS[name]
            parents = [f"{base.__module__}.{base.__qualname__}" for base in row["impl"].__mro__]
            assert theirs["impl"] in parents and theirs["type"] == row["type"]
    assert {"text-classification", "question-answering", "text-generation"} < NEURONX_SUPPORTED_TASKS.keys()


def test_models_of_sentence_transformers_are_known(tmp_path):
    from optimum.neuron.pipelines.transformers.sentence_transformers import is_sentence_transformer_model

    assert not is_sentence_transformer_model(str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    assert is_sentence_transformer_model(str(tmp_path))


def test_versions_and_dtypes_that_scripts_ask_for():
    from optimum.neuron.utils import is_neuron_available, map_torch_dtype
    from optimum.neuron.utils.version_utils import get_neuronxcc_version

    assert get_neuronxcc_version() == COMPILER_VERSION and not is_neuron_available()
    assert map_torch_dtype("bf16") is map_torch_dtype("torch.bfloat16") is torch.bfloat16
    assert map_torch_dtype(torch.float16) is torch.float16


def test_checkpoint_is_joined_with_arguments_of_scripts(tmp_path):
    from optimum.neuron.models.training.checkpointing import (
        consolidate_model_parallel_checkpoints_to_unified_checkpoint as join,
    )

    weights = {"a": torch.arange(4.0)}
    (tmp_path / "checkpoint").mkdir()
    save_file(weights, tmp_path / "checkpoint" / "model.safetensors")
    join(checkpoint_dir=tmp_path / "checkpoint", output_dir=tmp_path / "joined", save_format="safetensors")
    assert torch.equal(load_file(tmp_path / "joined" / "model.safetensors")["a"], weights["a"])
    with pytest.raises(ConfigError) as excinfo:
        join(tmp_path / "checkpoint", tmp_path / "other", "pytorch")
    assert excinfo.value.details["option"] == "save_format" and not (tmp_path / "other").exists()


def test_models_load_within_the_context_of_older_scripts(checkpoint):
    from optimum.neuron.distributed import lazy_load_for_parallelism
    from transformers import AutoModelForCausalLM

    with lazy_load_for_parallelism(tensor_parallel_size=2):
        assert AutoModelForCausalLM.from_pretrained(checkpoint).num_parameters() > 0
    with pytest.raises(ConfigError) as excinfo, lazy_load_for_parallelism(pipeline_parallel_size=0):
        pass
    assert excinfo.value.details == {"option": "pipeline_parallel_size"}
