"""Compare the pictures of every pipeline class of diffusers with its compiled form, and write `docs/pipelines.md`.

`python -m tests.tiny_pipelines.coverage` measures what has no result yet; names measure these again. A class gets the
components of the first row of `PIPELINES` that has all of them, so it needs no row of its own. Every class runs in a
separate process. The page lists all classes, those without a result too.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import json
import re
import tempfile
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers
from tqdm import tqdm

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import NeuronError
from tests import apart
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
PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
SECONDS = 600.0
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one class came to."""

    pipeline: str
    outcome: str
    max_diff: float | None = None
    """Largest difference of pictures in [0, 1]."""
    reason: str = ""


def names() -> list[str]:
    """Every pipeline class of diffusers, without base classes and second names."""
    classes = {name: getattr(diffusers, name) for name in dir(diffusers) if name.endswith("Pipeline")}
    bases = {"DiffusionPipeline", "ModularPipeline"}
    return sorted(name for name, one in classes.items() if one.__name__ == name and name not in bases)


def outcome_without_run(name: str) -> Result | None:
    """Return the outcome of a class that cannot run here."""
    one = getattr(diffusers, name)
    if packages := getattr(one, "_backends", None):
        return Result(pipeline=name, outcome="not installed", reason=", ".join(packages))
    if issubclass(one, diffusers.ModularPipeline):
        return Result(pipeline=name, outcome="modular")
    if missing := [
        f"{part}: {' or '.join(kinds)}" for part, kinds in required(name).items() if not any(known(part, kinds))
    ]:
        return Result(pipeline=name, outcome="no components", reason="; ".join(missing))
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
        return Result(pipeline=name, outcome="no reference", reason=_one_line(error))
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
        return Result(pipeline=name, outcome="refused", reason=_plain(error.message))
    except Exception as error:
        return Result(pipeline=name, outcome="crash", reason=_one_line(error))
    if expected.shape != actual.shape:
        return Result(pipeline=name, outcome="differs", reason=f"shape {actual.shape} instead of {expected.shape}")
    diff = float(np.abs(expected - actual).max())
    return Result(pipeline=name, outcome="equal" if diff <= TOLERANCE else "differs", max_diff=diff)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {_plain(str(error))}"


def _plain(text: str) -> str:
    """One line without folders of this machine."""
    return re.sub(r"(\S*/site-packages/|/tmp/\w+)", "", " ".join(text.split()))


def measure_apart(name: str, seconds: float) -> Result:
    """Measure in a process of its own."""
    return apart.measure_apart(measure, name, seconds, functools.partial(_crash, name))


def _crash(name: str, reason: str) -> Result:
    return Result(pipeline=name, outcome="crash", reason=reason)


def page(results: Iterable[Result]) -> str:
    """The page of all results, as Markdown."""
    rows = sorted(results, key=lambda result: (list(OUTCOMES).index(result.outcome), result.pipeline))
    counts = Counter(result.outcome for result in rows)
    lines = [
        "# Pipelines that were compared with diffusers",
        "",
        f"diffusers {diffusers.__version__} has {len(rows)} pipeline classes. A tiny random pipeline of each class "
        "whose components the tests have ran through diffusers and compiled, with `-O1` in float32: a plain call of "
        "a few steps. This is about classes: a published pipeline may have options that its row does not cover, and "
        "every export compares a picture with diffusers.",
        "",
        "| Result | Classes | Meaning |",
        "|---|---|---|",
        *(f"| {name} | {counts[name]} | {meaning} |" for name, meaning in OUTCOMES.items() if counts[name]),
        "",
        "`python -m tests.tiny_pipelines.coverage` made this page. Difference is that of a picture in [0, 1].",
        "",
        "| Class | Result | Difference | Reason |",
        "|---|---|---|---|",
    ]
    for row in rows:
        difference = "" if row.max_diff is None else f"{row.max_diff:.1e}"
        reason = row.reason.replace("|", "\\|")
        reason = reason if len(reason) <= 240 else reason[:240] + "..."
        lines.append(f"| {row.pipeline} | {row.outcome} | {difference} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, keep every result as a line of JSON, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.tiny_pipelines.coverage", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="classes to measure again; default: without result")
    parser.add_argument("--results", type=Path, default=Path("build/pipelines.jsonl"), help="JSON lines: %(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of each: %(default)s")
    options = parser.parse_args()
    every = names()
    if unknown := sorted(set(options.names) - set(every)):
        parser.error(f"diffusers has no pipeline named {', '.join(unknown)}")
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    results = {result.pipeline: result for result in (Result(**json.loads(line)) for line in lines)}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with tqdm(options.names or [name for name in every if name not in results], unit="class") as bar:
        for name in bar:
            bar.set_postfix_str(name)
            results[name] = result = outcome_without_run(name) or measure_apart(name, options.seconds)
            with options.results.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(result)) + "\n")
    print(*(f"{name}: {count}" for name, count in Counter(result.outcome for result in results.values()).items()))
    PAGE.write_text(page(results.get(name, Result(pipeline=name, outcome="not measured")) for name in every))


if __name__ == "__main__":
    main()
