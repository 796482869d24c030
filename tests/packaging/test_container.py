"""The Dockerfile, as far as it can be checked without Docker: `test_wheels.py` builds from the files that it copies."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib

from tests.docs.fences import page_fences
from tests.packaging.conftest import copied
from tests.tree import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]


def of_kind(kind: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == kind]


def test_copied_files_exist_and_are_in_build_context():
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    rules = [r for r in (ROOT / ".dockerignore").read_text().splitlines() if r and not r.startswith("#")]
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*" and sent == copied()
    ignored = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    assert [name for name in copied() for rule in ignored if fnmatch.fnmatch(name, rule)] == []


def test_pip_lines_match_docs():
    page = "".join(fence.text for fence in page_fences(ROOT / "docs" / "install.md"))
    lines = [line.replace("--no-cache-dir ", "") for line in of_kind("RUN") if line.startswith("pip install")]
    assert len(lines) == 2
    assert [line for line in lines if line not in page.splitlines()] == []


def test_python_and_torch_match_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (image,) = of_kind("FROM")
    version = image.removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    (torch,) = (need for need in project["dependencies"] if need.startswith("torch"))
    assert f'"{torch}"' in DOCKERFILE


def test_image_runs_command_as_unprivileged_user():
    assert of_kind("USER") == ["neuron"] and any("useradd" in line and "neuron" in line for line in of_kind("RUN"))
    (entry,) = of_kind("ENTRYPOINT")
    assert json.loads(entry) == ["optimum-cli"]
    names = [name for name, _ in INSTRUCTIONS]
    assert names.index("USER") < names.index("ENTRYPOINT")
