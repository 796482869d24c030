"""A transformers model in memory as the source of an export: what a folder says of a checkpoint, said of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import transformers

from ..errors import ConfigError, ModelError, refusal
from ..exporters.kinds import kind_of
from ..exporters.prepare import WorkFolder
from ..exporters.quantization import require_plain
from ..exporters.source import ModelSource, infer_task
from ..exporters.tasks import architectures_of, task_of


@contextlib.contextmanager
def source_in_memory(module: transformers.PreTrainedModel, task: str) -> Iterator[tuple[ModelSource, WorkFolder]]:
    """Give a source with its folder of configurations; inside, the module is in evaluation mode.

    Args:
        module: the model.
        task: what it is exported for; "auto" infers it.

    Raises:
        ConfigError: it is no transformers model, or has code of its own where that is not captured.
        ModelError: its class is for another task, or its weights are quantized.
    """
    if not isinstance(module, transformers.PreTrainedModel):
        raise ConfigError(
            refusal(
                asked=f"from_model({type(module).__name__})",
                found="no transformers model",
                why="inputs and results are read from its configuration and forward",
                do="pass a transformers model, or trace the module with torch_neuronx.trace",
            )
        )
    task = infer_task(module.config, task).value
    _require_head(module, task)
    require_plain(module.config, model=type(module).__name__)
    kind = kind_of(task, module.config.model_type)
    if not kind.captures_module and not type(module).__module__.startswith("transformers."):
        raise ConfigError(
            refusal(
                asked=f"from_model({type(module).__name__})",
                found=f"a class of {type(module).__module__}",
                why=f"models of the kind {kind.name} are built from their configuration, so its code would be ignored",
                do="pass a model of transformers' own class, or save it with its code and pass trust_remote_code=True",
            )
        )
    work = WorkFolder()
    module.config.save_pretrained(work.path)
    if module.can_generate():
        module.generation_config.save_pretrained(work.path)
    source = ModelSource(
        name=type(module).__name__, folder=work.path, config=module.config, revision=None, module=module
    )
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield source, work
    finally:
        for part in in_training:
            part.training = True


def _require_head(module: transformers.PreTrainedModel, task: str) -> None:
    """Refuse a class of transformers that is for another task; a class of the user's own may do what it likes.

    Raises:
        ModelError: the results would be those of the other task.
    """
    names = [kind.__name__ for kind in type(module).__mro__]
    known = {name for names in architectures_of(task).values() for name in names}
    served = next((served for name in names if (served := task_of(name)) is not None), None)
    if known.isdisjoint(names) and served is not None:
        raise ModelError(
            refusal(
                asked=f"{task} with a {type(module).__name__}",
                found=f"a model for {served}",
                why=f"its results are not those of {task}",
                do=f"pass a model with a head for {task}, or compile it for {served}",
            )
        )
