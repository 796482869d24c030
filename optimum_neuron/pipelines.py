"""`pipeline`: transformers' pipelines over compiled models, with the model named by a path.

    from optimum_neuron import pipeline
    chat = pipeline("text-generation", "smollm2", export=True, sequence_length=512)
    print(chat("The capital of France is"))

transformers' own `pipeline(task, model=neuron_model, tokenizer=...)` works as well; this one loads or exports
the model and finds its tokenizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelError, nearest, refusal

if TYPE_CHECKING:
    from transformers import Pipeline, PreTrainedTokenizerBase

    from .modeling.loading import NeuronModel

DEFAULT_MODELS = {"text-generation": "smollm2"}
"""Model of each task when none is named."""


def pipeline(
    task: str,
    model: str | Path | NeuronModel | None = None,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    *,
    export: bool | None = None,
    **options: Any,
) -> Pipeline:
    """Build a transformers pipeline on a compiled model.

    Args:
        task: "text-generation".
        model: exported folder, checkpoint, name, or a loaded model; None takes the task's default.
        tokenizer: tokenizer or its path; None takes the model's.
        export: True exports a checkpoint, False requires an exported folder, None does what fits.
        **options: keywords of `NeuronModelForCausalLM.from_pretrained` such as `batch_size` and
            `sequence_length`; all others go to transformers' pipeline.

    Raises:
        ModelError: the task is unknown, or there is no tokenizer.
        NeuronError: the model cannot be exported or loaded.
    """
    import transformers

    from .exporters.request import COMPILE_OPTIONS, SOURCE_OPTIONS
    from .modeling import NeuronModelForCausalLM
    from .modeling.loading import EXPORT_OPTIONS, NeuronModel

    if task not in DEFAULT_MODELS:
        raise ModelError(
            refusal(
                asked=f"pipeline({task!r})",
                found=f"no such task here{nearest(task, DEFAULT_MODELS)}",
                why=f"compiled models serve {', '.join(DEFAULT_MODELS)}",
                do="pass one of them",
            )
        )
    known = (*COMPILE_OPTIONS, *SOURCE_OPTIONS, *EXPORT_OPTIONS)
    loading = {key: options.pop(key) for key in known if key in options}
    if not isinstance(model, NeuronModel):
        model = NeuronModelForCausalLM.from_pretrained(model or DEFAULT_MODELS[task], export=export, **loading)
    if tokenizer is None or isinstance(tokenizer, (str, Path)):
        tokenizer = _tokenizer(Path(tokenizer) if tokenizer else model.source_folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, **options)


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            refusal(
                asked=f"the tokenizer of {folder}",
                found=" ".join(str(error).split())[:300],
                why="a text pipeline needs one",
                do="pass tokenizer=",
            )
        ) from error
