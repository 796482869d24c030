"""Export models in memory to files of a single program, and compare such files with the models.

    inputs, outputs = export(model, config, Path("model.neuron"))
    validate_model_outputs(config, model, Path("model.neuron"), outputs)

A file is a TorchScript module, as `torch.jit.save` writes it. It is for single-pass models; `main_export` writes
folders of all kinds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.neuron._configs import NeuronDefaultConfig
from optimum.exporters.neuron._validation import Parts, file_of, is_of_sentences
from optimum.exporters.tasks import TasksManager
from optimum.utils.save_utils import maybe_save_preprocessors

import optimum_neuron
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.options.peer_attributes import NEFF_FILE, upstream_rules
from optimum_neuron.sources import TASKS, plain_task
from optimum_neuron.tracing import inputs_of, outputs_of, script_of


def export(
    model_or_path: Any, config: NeuronDefaultConfig, output: str | Path, **options: Any
) -> tuple[list[str], list[str]]:
    """Compile a model with the shapes of a configuration, and write its program to a file.

    Args:
        model_or_path: transformers model, sentence-transformers model, whose transformer alone is compiled, or a
            checkpoint's folder or id.
        config: an export configuration, such as one of `TasksManager.get_exporter_config_constructor`.
        output: file to write.
        **options: as of `from_pretrained`, such as `instance_type`, `auto_cast`, and `optlevel`.

    Returns:
        Names of inputs and of outputs, in the order of the program.

    Raises:
        ModelError: models for the task have several programs.
        NeuronError: the model cannot be compiled, see `optimum_neuron/errors.py`.
    """
    given = {"disable_validation": True, **config.sizes(), **options}
    with upstream_rules():
        compiled = _compiled(model_or_path, config.task, given)
    try:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        script = script_of(compiled)
        torch.jit.save(script, str(output))
        return list(inputs_of(script)), outputs_of(script)
    finally:
        compiled.close()


def _compiled(model: Any, task: str, options: dict[str, Any]) -> Any:
    """A loaded single-pass model."""
    if is_of_sentences(model):
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            return optimum_neuron.NeuronSentenceTransformer.from_pretrained(folder, export=True, **options)
    name = TASKS[plain_task(task)].model_class if plain_task(task) in TASKS else ""
    model_class = getattr(optimum_neuron, name, None)
    if model_class is None or not issubclass(model_class, optimum_neuron.NeuronTracedModel):
        raise _of_several_programs(task)
    if isinstance(model, (str, Path)):
        return model_class.from_pretrained(model, export=True, **options)
    return model_class.from_model(model, **options)


def _of_several_programs(task: str) -> ModelError:
    message = f"A model for {task} is no single program with one call."
    return ModelError(message, hint="Use `main_export`, which writes a folder with all parts of a model.", task=task)


def get_submodels_and_neuron_configs(
    model: Any,
    input_shapes: Mapping[str, int],
    task: str,
    output: str | Path,
    library_name: str = "transformers",
    *,
    dynamic_batch_size: bool = False,
    model_name_or_path: str | Path | None = None,
    subfolder: str = "",
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[dict[str, tuple[Any, NeuronDefaultConfig]], dict[str, str]]:
    """Return a single-pass model with its configuration, and the name of its file, for `export_models`.

    Args:
        model: transformers model.
        input_shapes: static shapes by their axis.
        task: name of a task.
        output: folder, in which the tokenizer and the processor of the checkpoint are saved.
        library_name: "transformers" or "sentence_transformers".
        dynamic_batch_size: compile for a batch size of 1 too.
        model_name_or_path: the checkpoint, whose tokenizer and processor are saved; None: none are.
        subfolder: its folder in the checkpoint.
        trust_remote_code: run code of the checkpoint for it.
        **options: further arguments of the configuration.

    Raises:
        ConfigError: no such architecture was compared with transformers for the task.
        ModelError: the model has several parts.
    """
    is_whole = library_name == "diffusers" or getattr(model.config, "is_encoder_decoder", False)
    if is_whole:
        raise _of_several_programs(task)
    try:
        constructor: Any = TasksManager.get_exporter_config_constructor(
            "neuron", model=model, task=task, library_name=library_name
        )
    except (KeyError, ValueError) as error:
        message = f"A {model.config.model_type} model for {task} was not compared with transformers."
        raise ConfigError(message, hint="Use `main_export`, which validates the export.", task=task) from error
    config = constructor(model.config, input_shapes=input_shapes, dynamic_batch_size=dynamic_batch_size, **options)
    if model_name_or_path is not None:
        Path(output).mkdir(parents=True, exist_ok=True)
        maybe_save_preprocessors(model_name_or_path, output, subfolder, trust_remote_code)
    name = Path(str(model_name_or_path or model.config.model_type)).name
    return {name: (model, config)}, {name: NEFF_FILE}


def export_models(
    models_and_neuron_configs: Parts,
    task: str,
    output_dir: str | Path,
    output_file_names: Mapping[str, str | Path] | None = None,
    compiler_kwargs: Mapping[str, Any] | None = None,
    model_name_or_path: str | Path | None = None,
    **options: Any,
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Compile several models, each to a separate file in a folder.

    Args:
        models_and_neuron_configs: models and their configurations, by name.
        task: not needed: configurations have their task.
        output_dir: folder to write.
        output_file_names: names of files, by the names of models; None: the name with ".neuron".
        compiler_kwargs: options such as `auto_cast`, `auto_cast_type`, and `instance_type`.
        model_name_or_path: not needed.
        **options: as of `export`.

    Returns:
        Names of inputs and of outputs of each model.

    Raises:
        NeuronError: as `export`.
    """
    inputs: dict[str, list[str]] = {}
    outputs: dict[str, list[str]] = {}
    for name, (model, config) in models_and_neuron_configs.items():
        file = Path(output_dir) / file_of(name, output_file_names)
        inputs[name], outputs[name] = export(model, config, file, **options, **(compiler_kwargs or {}))
    return inputs, outputs
