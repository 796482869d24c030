"""Use a transformers model in memory as the source of an export."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import transformers

from ..errors import ConfigError, ModelError
from ..files.atomic import WorkFolder
from ..kinds import kind_of
from ..sources import ModelSource, architectures_of, infer_task, require_plain, task_of


@contextlib.contextmanager
def source_in_memory(module: transformers.PreTrainedModel, task: str) -> Iterator[tuple[ModelSource, WorkFolder]]:
    """Return a source and the folder of its configuration; in this context, the module is in evaluation mode."""
    name = type(module).__name__
    if not isinstance(module, transformers.PreTrainedModel):
        hint = "Pass a transformers model, or trace the module with torch_neuronx.trace."
        raise ConfigError(f"from_model takes a transformers model, not a {name}.", hint=hint, type=name)
    task = infer_task(module.config, task).value
    _require_head(module, task)
    require_plain(module.config, model=name)
    kind = kind_of(task, module.config.model_type)
    if not kind.captures_module and not type(module).__module__.startswith("transformers."):
        built = f"models of the kind {kind.name} are built from their configuration"
        message = f"{name} is not a class of transformers: {built}, so its code would be ignored."
        hint = "Pass a model of a transformers class, or save it with its code and pass trust_remote_code=True."
        raise ConfigError(message, hint=hint, type=name)
    work = WorkFolder()
    module.config.save_pretrained(work.path)
    if module.can_generate():
        module.generation_config.save_pretrained(work.path)
    source = ModelSource(name=name, folder=work.path, config=module.config, revision=None, module=module)
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield source, work
    finally:
        for part in in_training:
            part.training = True


def _require_head(module: transformers.PreTrainedModel, task: str) -> None:
    """Check that a transformers class is for the task; a custom class may be for any."""
    names = [kind.__name__ for kind in type(module).__mro__]
    known = {name for names in architectures_of(task).values() for name in names}
    served = next((served for name in names if (served := task_of(name)) is not None), None)
    if known.isdisjoint(names) and served is not None:
        message = f"A {type(module).__name__} is a model for {served}, not {task}."
        hint = f"Pass a model with a head for {task}, or compile it for {served}."
        raise ModelError(message, hint=hint, task=task, served=served)
