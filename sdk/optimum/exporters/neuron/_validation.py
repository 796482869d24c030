"""Compare files that `export` and `export_models` wrote with the original models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from optimum.exporters.neuron._configs import NeuronDefaultConfig
from optimum.neuron._log import logger

from optimum_neuron.errors import ValidationError
from optimum_neuron.kinds import flatten
from optimum_neuron.kinds.encoder import call_options
from optimum_neuron.tracing import inputs_of

Parts: TypeAlias = Mapping[str, tuple[Any, NeuronDefaultConfig]]
"""Models and their configurations, by name."""


def validate_model_outputs(
    config: NeuronDefaultConfig,
    reference_model: Any,
    neuron_model_path: str | Path,
    neuron_named_outputs: list[str],
    atol: float | None = None,
) -> None:
    """Compare a file that `export` wrote with the original model, for random inputs that fill the program.

    Values that differ by more than the tolerance are a warning, as in Optimum Neuron.

    Args:
        config: the configuration of the export.
        reference_model: the original model.
        neuron_model_path: the file.
        neuron_named_outputs: names of the outputs that `export` returned.
        atol: largest absolute difference; None: that of the configuration, or 0.001.

    Raises:
        ValidationError: the original model has no such output, or one of another shape.
    """
    script = torch.jit.load(str(neuron_model_path))
    try:
        inputs = _example(inputs_of(script), reference_model)
        actual = dict(zip(neuron_named_outputs, script(*inputs.values()), strict=True))
    finally:
        script.close()
    expected = _reference(reference_model, inputs, config)
    if missing := [name for name in actual if name not in expected]:
        message = f"The model has no output {', '.join(missing)}: it has {', '.join(expected)}."
        raise ValidationError(message, outputs=missing, choices=list(expected))
    shapes = {name: (tuple(actual[name].shape), tuple(expected[name].shape)) for name in actual}
    if wrong := {name: pair for name, pair in shapes.items() if pair[0] != pair[1]}:
        shown = ", ".join(f"{name} has shape {one} instead of {other}" for name, (one, other) in wrong.items())
        raise ValidationError(f"{shown}.", outputs=sorted(wrong))
    tolerance = config.tolerance() if atol is None else atol
    for name, tensor in actual.items():
        error = (tensor.float() - expected[name].float()).abs().max().item()
        is_close = error <= tolerance
        log = logger.info if is_close else logger.warning
        log("%s: the largest difference is %.3g, tolerance %.3g", name, error, tolerance)


def _example(inputs: Mapping[str, torch.Tensor], model: Any) -> dict[str, torch.Tensor]:
    """Random values in the shapes of inputs, the same each time; tokens are below the size of the vocabulary."""
    generator = torch.Generator().manual_seed(0)
    text = transformer_of(model).config.get_text_config()
    vocabulary = getattr(text, "vocab_size", None) or getattr(text, "n_words", None) or 2
    values: dict[str, torch.Tensor] = {}
    for name, zeros in inputs.items():
        if zeros.is_floating_point():
            values[name] = torch.randn(zeros.shape, generator=generator).to(zeros.dtype)
        elif name == "input_ids":
            values[name] = torch.randint(vocabulary, zeros.shape, generator=generator, dtype=zeros.dtype)
        else:
            values[name] = torch.ones_like(zeros) if name.endswith("_mask") else zeros
    return values


def _reference(model: Any, inputs: Mapping[str, torch.Tensor], config: NeuronDefaultConfig) -> dict[str, torch.Tensor]:
    """Outputs of the original model in evaluation mode, by name."""
    model = transformer_of(model)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            options = call_options(
                model, attentions=config.output_attentions, hidden_states=config.output_hidden_states
            )
            return flatten(model(**inputs, **options))
    finally:
        model.train(was_training)


def validate_models_outputs(
    models_and_neuron_configs: Parts,
    neuron_named_outputs: Mapping[str, list[str]],
    output_dir: str | Path,
    atol: float | None = None,
    neuron_files_subpaths: Mapping[str, str | Path] | None = None,
) -> None:
    """Compare each file that `export_models` wrote with the original model.

    Args:
        models_and_neuron_configs: models and their configurations, by name.
        neuron_named_outputs: names of outputs that `export_models` returned.
        output_dir: the folder.
        atol: as of `validate_model_outputs`.
        neuron_files_subpaths: names of files, by the names of models; None: the name with ".neuron".

    Raises:
        ValidationError: as `validate_model_outputs`.
    """
    for name, (model, config) in models_and_neuron_configs.items():
        file = Path(output_dir) / file_of(name, neuron_files_subpaths)
        validate_model_outputs(config, model, file, neuron_named_outputs[name], atol)


def is_of_sentences(model: Any) -> bool:
    """Return whether a model is one of sentence-transformers."""
    return type(model).__module__.startswith("sentence_transformers.")


def transformer_of(model: Any) -> Any:
    """Return the transformers model, which a program has; in a model of sentences, pooling runs on the host."""
    if not is_of_sentences(model):
        return model
    return getattr(model[0], "auto_model", None) or model[0].model


def file_of(name: str, names: Mapping[str, str | Path] | None) -> Path:
    """Return the file of a model in the folder of an export."""
    return Path(f"{name}.neuron") if names is None else Path(names[name])
