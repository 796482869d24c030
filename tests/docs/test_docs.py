"""Every example of every page runs, every link leads somewhere, and no page names a place on our machines."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs import fences
from tests.docs.fences import PYTHON, SHELL, Fence
from tests.tree import ROOT, files
from tools.generate_docs import PARTS, command_parsers, fill

PAGES = fences.pages()
README = ROOT / "README.md"


def runnable(path: Path, *, checkpoint: bool) -> list[Fence]:
    """Blocks of a page that run in one test: with a real model, or without."""
    result = [
        f for f in fences.page_fences(path) if f.language in (*PYTHON, *SHELL) or "output" in f.tags or f.value("file")
    ]
    kept, keep = [], False
    for fence in result:
        if "output" not in fence.tags:
            keep = "no-run" not in fence.tags and ("checkpoint" in fence.tags) == checkpoint
        if keep:
            kept.append(fence)
    return kept


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_pages():
    assert {"README.md", "docs/index.md", "docs/quickstart.md"} <= {name(path) for path in PAGES}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_blocks_are_tagged_with_known_words_and_compile(path):
    for fence in fences.page_fences(path):
        unknown = {tag for tag in fence.tags - fences.TAGS if not tag.startswith(("needs:", "file:"))}
        assert not unknown, f"{fence}: {unknown}"
        if fence.language in PYTHON:
            fences.compiled(fence)
        if fence.language in SHELL and not fence.tags:
            lines = [line for line in fence.text.replace("\\\n", " ").splitlines() if line.strip()]
            other = [line for line in lines if not line.startswith(("optimum-cli ", "#"))]
            assert not other, f"{fence}: cannot run {other}; tag the block no-run"


@pytest.fixture(scope="module")
def parsers():
    return command_parsers()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_parse(path, parsers):
    for fence in fences.page_fences(path):
        for words in fences.commands(fence):
            known = [command for command in parsers if words[: len(command.split())] == command.split()]
            assert known, f"{fence}: no command in 'optimum-cli {' '.join(words)}'"
            rest = words[len(known[0].split()) :]
            if "--help" not in rest:
                parsers[known[0]].parse_args(rest)


def is_installed(needs: str) -> bool:
    """Whether a module is here, in the version that stands behind its name if any."""
    requirement = Requirement(needs)
    if importlib.util.find_spec(requirement.name) is None:
        return False
    return not requirement.specifier or importlib.metadata.version(requirement.name) in requirement.specifier


@pytest.mark.full(days=14)
@pytest.mark.parametrize("path", [p for p in PAGES if runnable(p, checkpoint=False)], ids=name)
def test_examples_run(path):
    blocks = runnable(path, checkpoint=False)
    modules = {module for block in blocks for module in block.needs}
    missing = sorted(module for module in modules if not is_installed(module))
    fences.run_here(blocks, without=missing)
    if missing:
        pytest.skip(f"ran without the blocks that need {', '.join(missing)}")


@pytest.mark.full(days=14)
@pytest.mark.checkpoint
@pytest.mark.parametrize("path", [p for p in PAGES if p != README and runnable(p, checkpoint=True)], ids=name)
def test_examples_with_real_model_run(path, tmp_path, real_environment):
    for fence, output in fences.with_outputs(runnable(path, checkpoint=True)):
        fences.run_apart(fence, output, tmp_path, real_environment)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_generated_parts_match_the_code(path):
    text = path.read_text(encoding="utf-8")
    assert fill(text) == text, f"run `python tools/generate_docs.py`: {name(path)} is behind the code"


def test_every_generated_part_is_on_page():
    everything = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert [part for part in PARTS if f"<!-- generated: {part} -->" not in everything] == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_relative_links_resolve(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def anchors(path: Path) -> set[str]:
    """Anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_of_docs_is_in_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([a-z0-9_-]+\.md)\)", index))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_no_file_contains_local_paths():
    # Written apart, or this file would be found too.
    places = ["../" + "shared", "/work" + "/", "/root" + "/"]
    results = []
    for file in files():
        text = (ROOT / file).read_bytes().decode("utf-8", errors="replace")
        results += [f"{file}: {place}" for place in places if place in text]
    assert results == []
