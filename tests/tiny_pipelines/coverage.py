"""Compare the pictures of every pipeline class of diffusers with its compiled form, and write `docs/pipelines.md`.

`python -m tests.tiny_pipelines.coverage` measures what has no result yet; names measure these again. A class gets the
components of the first row of `PIPELINES` that has all of them, so it needs no row of its own. Every class runs in a
separate process. The page lists all classes, those without a result too.
"""

from __future__ import annotations

import inspect
import re
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import NeuronError
from tests.study import Result, Study, error_line, main, plain
from tests.tiny_pipelines.calls import arguments, compile_options, pictures
from tests.tiny_pipelines.components import SIDE, TOKENS
from tests.tiny_pipelines.more import FAMILIES
from tests.tiny_pipelines.table import PIPELINES, Part, Tiny, make_pipeline, save_pipeline

TOLERANCE = 1e-3
"""Largest difference of a picture in [0, 1] that counts as equal."""
OUTCOMES = {
    "equal": f"pictures differ from those of diffusers by at most {TOLERANCE:g}",
    "differs": "other pictures than diffusers",
    "refused": "the export refuses it, for the reason in the table",
    "crash": "an error that is no refusal, or the time limit",
    "no reference": "diffusers itself does not run it with tiny components and a plain call",
    "no components": "there are no tiny models of its classes, so it was not compared; an export may work",
    "modular": "a modular pipeline: it is assembled from blocks, has no fixed call, and cannot be exported",
    "not installed": "diffusers needs a package that was not installed",
    "not measured": "no result yet",
}
"""Outcome to what it means."""
_INPUTS = ("prompt", "image", "mask_image", "control_image")
_CALL: dict[str, Any] = {
    "class_labels": [1],
    "max_sequence_length": TOKENS,
    "num_frames": 9,
    "source_prompt": "a blue fish",
    "max_area": SIDE**2,
    "_auto_resize": False,
}
"""Keywords of a call that takes them."""
_LOCAL = "_measured"


def names() -> list[str]:
    """Every pipeline class of diffusers, without base classes and second names."""
    classes = {name: getattr(diffusers, name) for name in dir(diffusers) if name.endswith("Pipeline")}
    bases = {"DiffusionPipeline", "ModularPipeline"}
    return sorted(name for name, one in classes.items() if one.__name__ == name and name not in bases)


def outcome_without_run(name: str) -> Result | None:
    """Return the outcome of a class that cannot run here."""
    one = getattr(diffusers, name)
    if packages := getattr(one, "_backends", None):
        return Result(name=name, outcome="not installed", reason=", ".join(packages))
    if issubclass(one, diffusers.ModularPipeline):
        return Result(name=name, outcome="modular")
    if missing := [
        f"{part}: {' or '.join(kinds)}" for part, kinds in required(name).items() if not any(known(part, kinds))
    ]:
        return Result(name=name, outcome="no components", reason="; ".join(missing))
    return None


def required(name: str) -> dict[str, tuple[str, ...]]:
    """Names of a class's components, and of the classes that each may have."""
    one = getattr(diffusers, name)
    modules, _ = one._get_signature_keys(one)
    try:
        hints = typing.get_type_hints(one.__init__)
    except NameError:
        hints = {}
    kinds = {}
    for part, parameter in inspect.signature(one.__init__).parameters.items():
        if part in modules and parameter.default is inspect.Parameter.empty:
            kinds[part] = tuple(_class_names(hints.get(part, parameter.annotation)))
    return {
        part: names for part, names in kinds.items() if any(known(part, names)) or part not in one._optional_components
    }


def _class_names(hint: Any) -> Iterator[str]:
    if isinstance(hint, str):
        yield from re.findall(r"\w+", hint)
    elif typing.get_args(hint):
        for one in typing.get_args(hint):
            yield from _class_names(one)
    elif hint is not type(None):
        yield getattr(hint, "__name__", str(hint))


def known(part: str, kinds: tuple[str, ...]) -> Iterator[Part]:
    """Yield the tiny components of a name that have one of the classes; a scheduler may have any."""
    for parts in (*(row.parts for row in PIPELINES.values()), *FAMILIES.values()):
        value = parts.get(part)
        is_any = part == "scheduler" or (part == "tokenizer" and "AutoTokenizer" in kinds)
        if isinstance(value, tuple) and (is_any or _is_kind(value[0], kinds)):
            yield value


def _is_kind(class_name: str, kinds: tuple[str, ...]) -> bool:
    """Whether a class is a subclass of one of the classes, by name."""
    one = getattr(diffusers, class_name, None) or getattr(transformers, class_name, None)
    return class_name in kinds or (one is not None and any(base.__name__ in kinds for base in one.__mro__))


def tiny(name: str) -> Tiny:
    """Return a row for a class: that of `PIPELINES`, or one whose components fit."""
    one, needs = getattr(diffusers, name), required(name)
    for row in PIPELINES.values():
        if row.class_name == name:
            return row
    parameters = inspect.signature(one.__call__).parameters
    inputs = tuple(part for part in _INPUTS if part in parameters)
    # Components of one row fit each other.
    for row in (*PIPELINES.values(), *(Tiny(class_name=name, parts=parts) for parts in FAMILIES.values())):
        chosen = {part: row.parts.get(part) for part in needs}
        if all(isinstance(value, tuple) and value in [*known(part, needs[part])] for part, value in chosen.items()):
            break
    else:
        chosen = {part: next(known(part, kinds)) for part, kinds in needs.items()}
    call = {part: value for part, value in row.call.items() if part in parameters}
    if "guidance_scale" in call:
        del call["guidance_scale"]
    optional = dict.fromkeys(set(one._get_signature_keys(one)[0]) & set(one._optional_components))
    call |= {part: value for part, value in _CALL.items() if part in parameters and part not in call}
    return Tiny(class_name=name, parts=optional | chosen, inputs=inputs, call=call)


def measure(name: str) -> Result:
    """Run a tiny pipeline of a class through diffusers and compiled, and compare."""
    if (outcome := outcome_without_run(name)) is not None:
        return outcome
    PIPELINES[_LOCAL] = tiny(name)
    allowed = set(inspect.signature(getattr(diffusers, name).__call__).parameters)
    try:
        keywords = {key: value for key, value in arguments(_LOCAL).items() if key in allowed}
        stock = make_pipeline(_LOCAL)
        torch.manual_seed(0)  # some calls draw without their generator
        expected = np.asarray(pictures(stock(**keywords)))
    except Exception as error:
        return Result(name=name, outcome="no reference", reason=error_line(error))
    try:
        with tempfile.TemporaryDirectory() as folder:
            options = compile_options(_LOCAL) | {"disable_validation": True, "instance_type": "inf2.24xlarge"}
            with NeuronDiffusionPipeline.from_pretrained(
                save_pipeline(Path(folder), _LOCAL), export=True, **options
            ) as pipe:
                pipe.set_progress_bar_config(disable=True)
                keywords = {key: value for key, value in arguments(_LOCAL).items() if key in allowed}
                torch.manual_seed(0)
                actual = np.asarray(pictures(pipe(**keywords)))
    except NeuronError as error:
        return Result(name=name, outcome="refused", reason=plain(error.message))
    except Exception as error:
        return Result(name=name, outcome="crash", reason=error_line(error))
    if expected.shape != actual.shape:
        return Result(name=name, outcome="differs", reason=f"shape {actual.shape} instead of {expected.shape}")
    diff = float(np.abs(expected - actual).max())
    return Result(name=name, outcome="equal" if diff <= TOLERANCE else "differs", max_diff=diff)


STUDY = Study(
    names=names,
    measure=measure,
    module="tests.tiny_pipelines.coverage",
    seconds=600.0,
    outcomes=OUTCOMES,
    page=Path(__file__).resolve().parents[2] / "docs" / "pipelines.md",
    results=Path("build/pipelines.jsonl"),
    title="Pipelines that were compared with diffusers",
    introduction=f"diffusers {diffusers.__version__} has {{count}} pipeline classes. A tiny random pipeline of each "
    "class whose components the tests have ran through diffusers and compiled, with `-O1` in float32: a plain call of "
    "a few steps. This is about classes: a published pipeline may have options that its row does not cover, and "
    "every export compares a picture with diffusers.",
    difference="Difference is that of a picture in [0, 1].",
    noun="Class",
    plural="Classes",
)

if __name__ == "__main__":
    main(STUDY, description=__doc__)
