"""Compare many classes with their reference: one process and one line of JSON for each class, one page for all.

    STUDY = Study(names=names, measure=measure, outcomes={"exact": "equal tokens", ...}, page=PAGE, ...)
    main(STUDY, description=__doc__)

The page has a row for every name, including names without a result. This module does not know what a name is.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from tqdm import tqdm

MAX_REASON = 240
"""Characters of a reason that a page shows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one name."""

    name: str
    outcome: str
    path: str = ""
    """The family of a decoder, or "generic"."""
    max_diff: float | None = None
    """Largest difference from the reference."""
    num_distinct: int | None = None
    """Distinct tokens of the longest generation: one that repeats a token shows less."""
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Names, how each is measured, and the page of the results."""

    names: Callable[[], list[str]]
    measure: Callable[[str], Result]
    seconds: float
    """Time limit of each name."""
    outcomes: Mapping[str, str]
    """Outcome to its meaning, in the order of the page. "crash" and "not measured" are among them."""
    module: str
    """The module of the study, which `python -m` runs."""
    page: Path
    results: Path
    """Default file of the lines of JSON."""
    title: str
    introduction: str
    """First paragraph of the page; `{count}` is the number of names."""
    difference: str
    """Sentence about the column of differences."""
    noun: str
    """The names' column, and in the plural the column of their number."""
    plural: str
    path_of: frozenset[str] = frozenset()
    """Outcomes whose rows show the path; without any, there is no such column."""

    def measure_apart(self, name: str, seconds: float) -> Result:
        """Measure in a separate process, so that a crash or a hang does not stop the study."""
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(self.measure, name, sender))
        process.start()
        sender.close()
        result = Result(name=name, outcome="crash", reason=f"no result within {seconds:.0f} seconds")
        if receiver.poll(seconds):
            try:
                result = receiver.recv()
            except EOFError:
                process.join()
                result = dataclasses.replace(result, reason=f"the process ended with {process.exitcode}")
        process.kill()
        process.join()
        return result

    def page_of(self, results: Iterable[Result]) -> str:
        """Return the page of all results, as Markdown."""
        rows = sorted(results, key=lambda result: (list(self.outcomes).index(result.outcome), result.name))
        counts = Counter(result.outcome for result in rows)
        columns = [self.noun, "Result", *(["Path"] if self.path_of else []), "Difference", "Reason"]
        lines = [
            *(f"# {self.title}", "", self.introduction.format(count=len(rows)), ""),
            *(f"| Result | {self.plural} | Meaning |", "|---|---|---|"),
            *(f"| {name} | {counts[name]} | {meaning} |" for name, meaning in self.outcomes.items() if counts[name]),
            *(
                "",
                f"`python -m {self.module}` made this page. {self.difference}",
                "",
                f"| {' | '.join(columns)} |",
                "|---" * len(columns) + "|",
            ),
        ]
        for row in rows:
            difference = "" if row.max_diff is None else f"{row.max_diff:.1e}"
            path = [row.path if row.outcome in self.path_of else ""] if self.path_of else []
            reason = row.reason.replace("|", "\\|")
            reason = reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "..."
            lines.append(f"| {' | '.join([row.name, row.outcome, *path, difference, reason])} |")
        return "\n".join(lines) + "\n"


def error_line(error: Exception) -> str:
    """Class and message of an error in one line."""
    return f"{type(error).__name__}: {plain(str(error))}"


def plain(text: str) -> str:
    """One line without folders of this machine."""
    return re.sub(r"(\S*/site-packages/|/tmp/\w+)", "", " ".join(text.split()))


def read_results(file: Path) -> dict[str, Result]:
    """Results by name; the last line of a name counts."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.name: result for result in (Result(**json.loads(line)) for line in lines)}


def main(study: Study, *, description: str | None) -> None:
    """Measure names, keep every result as a line of JSON, and write the page."""
    parser = argparse.ArgumentParser(prog=f"python -m {study.module}", description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names to measure again; default: without result")
    parser.add_argument("--results", type=Path, default=study.results, help="lines of JSON: %(default)s")
    parser.add_argument("--seconds", type=float, default=study.seconds, help="time limit of each: %(default)s")
    options = parser.parse_args()
    every = study.names()
    if unknown := sorted(set(options.names) - set(every)):
        parser.error(f"no {study.noun.lower()} is named {', '.join(unknown)}")
    results = read_results(options.results)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with tqdm(options.names or [name for name in every if name not in results], unit=study.noun.lower()) as bar:
        for name in bar:
            bar.set_postfix_str(name)
            results[name] = result = study.measure_apart(name, options.seconds)
            with options.results.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(result)) + "\n")
            tqdm.write(f"{name}: {result.outcome}{f': {result.reason}' if result.reason else ''}")
    print(*(f"{name}: {count}" for name, count in Counter(result.outcome for result in results.values()).items()))
    missing = (Result(name=name, outcome="not measured") for name in every)
    study.page.write_text(study.page_of(results.get(one.name, one) for one in missing))


def _send(measure: Callable[[str], Result], name: str, sender: Connection) -> None:
    # What is printed would tear the bar of progress.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        sender.send(measure(name))
