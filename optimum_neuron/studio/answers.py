"""What the studio's page shows, as plain data: parts of pages, verdicts, and commands. It does not know HTTP.

answer = estimates([StudioRequest(model="smollm2", instance="inf2.xlarge")])
answer["columns"][0]["command"]
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.wording import duration, size
from ..errors import ConfigError, NeuronError
from ..pages import comparison_page, estimate_page, option_of, rows_table, shown, titles_of
from .request import StudioRequest

MAX_DEPTH, MAX_FOLDERS = 3, 2000
"""Of the search for exports and profiles below the studio's folder."""
PROFILE_TITLES = (b"<title>Profile of ", b"<title>NKI kernel ")


def estimates(requests: Sequence[StudioRequest]) -> dict[str, Any]:
    """Return the pages of one or two configurations; a column has an error in place of what cannot be estimated."""
    from ..simulator import estimate, estimate_grid

    columns: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for request in requests:
        command = request.command("--html", "estimate.html")
        try:
            result = estimate(request.model, **request.options())
        except NeuronError as error:
            columns.append({"error": sentence(error), "command": command})
            continue
        data = result.to_dict() | {"grid": estimate_grid(request.model, result, **request.options())}
        found.append(data)
        page = estimate_page(data).to_dict()
        columns.append({"page": page, "command": command, "verdicts": request.verdicts(data)})
    return {"columns": columns, "difference_html": _differences(*found) if len(found) == 2 else ""}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return a table of the quantities of two estimates, and how much the second has of the first."""
    titles = titles_of(one)
    rows = [
        {"quantity": title, "#first": shown(name, one[name]["value"]), "#second": shown(name, other[name]["value"])}
        | {"#second / first": f"{other[name]['value'] / one[name]['value']:.2f}" if one[name]["value"] else ""}
        for name, title in titles.items()
        if one[name] is not None and other[name] is not None
    ]
    return rows_table(rows)


def ranking(request: StudioRequest) -> dict[str, Any]:
    """Return the comparison of all instances, or of those of a family or the cores of one."""
    from ..simulator import compare

    options = {**request.options(), "batch_size": request.batch_size or "auto"}
    data = compare(request.model, **options).to_dict()
    kept = [one for one in data["ranked"] if all(each["verdict"] == "kept" for each in request.verdicts(one))]
    limits = request.ttft_ms is not None or request.tpot_ms is not None
    verdicts = []
    if limits:
        text = f"{len(kept)} of {len(data['ranked'])} options keep the limits at the upper end of their intervals"
        if kept:
            text += f"; the best: {option_of(kept[0])} a replica, batch {kept[0]['batch_size']}"
        verdicts = [{"verdict": "kept" if kept else "missed", "text": text}]
    more = ["--compare", *(() if request.batch_size else ("--batch_size", "auto"))]
    column = {"page": comparison_page(data).to_dict(), "command": request.command(*more), "verdicts": verdicts}
    return {"columns": [column], "difference_html": ""}


def shelf(folder: Path) -> dict[str, Any]:
    """Return the entries of the compile cache, and the exports and profiles below a folder."""
    from ..compiler.cache import CompileCache

    status = CompileCache().status()
    entries = [
        {
            "entry": one["name"].rpartition("/")[2],
            "state": one["state"],
            "#size": size(one["size_bytes"]),
            "age": duration(one["age_s"]) if one.get("age_s") is not None else "",
            "content": one.get("summary") or one["reason"],
        }
        for one in status["entries"]
    ]
    exports, profiles = [], []
    for path, kind in _found(folder):
        name = str(path.relative_to(folder))
        if kind == "export":
            exports.append({"name": name, "command": f"optimum-cli neuron inspect {shlex.quote(name)}"})
        else:
            profiles.append(name)
    return {
        "cache": {"url": status["url"], "size": size(status["size_bytes"]), "table_html": rows_table(entries)},
        "folder": str(folder),
        "exports": exports,
        "profiles": profiles,
    }


def _found(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield exports and pages of profiles below a folder; links are not followed."""
    from ..options.configuration import is_export

    waiting, seen = [(folder, 0)], 0
    while waiting and seen < MAX_FOLDERS:
        place, depth = waiting.pop(0)
        seen += 1
        try:
            children = sorted(place.iterdir())
        except OSError:
            continue
        for child in children:
            if child.is_symlink() or child.name.startswith("."):
                continue
            if child.is_dir() and is_export(child):
                yield child, "export"
            elif child.is_dir() and depth < MAX_DEPTH:
                waiting.append((child, depth + 1))
            elif child.suffix == ".html" and _is_profile(child):
                yield child, "profile"


def _is_profile(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return any(title in file.read(1024) for title in PROFILE_TITLES)
    except OSError:
        return False


def profile(folder: Path, name: str) -> str:
    """Return a page: that of a profile below the folder, or the profile of an export, which is run.

    Raises:
        ConfigError: it is neither.
    """
    known = {str(path.relative_to(folder)): (path, kind) for path, kind in _found(folder)}
    if name not in known:
        hint = "Choose one of the list."
        raise ConfigError(f"{name!r} is no export or profile below {folder}.", hint=hint, option="name", value=name)
    path, kind = known[name]
    if kind == "profile":
        return path.read_text(encoding="utf-8")
    from ..profiling import page, profile_folder

    return page(profile_folder(path))


def sentence(error: NeuronError) -> str:
    """Return the message of an error with what to do, in one line."""
    parts = error.to_dict()
    return " ".join(" ".join(str(part).split()) for part in (parts["message"], parts["hint"]) if part)
