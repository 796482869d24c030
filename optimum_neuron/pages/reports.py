"""Pages of bucket advice, checks, moves between instances, and benchmarks, from their plain data.

buckets_page(suggest_buckets([12, 60, 500]).to_dict()).text()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..base.wording import counted, listed, number
from .estimates import choice_rows, memory_plot
from .page import Axis, Page, rows_table

MAX_BARS = 25
_WASTE = "Padding tokens for each real token, with the best buckets of each number. Each bucket is one more compile."
_BUCKETS = "Tokens that the sequences of each bucket have, and what pads them to its length."
_OPERATORS = "FLOPs of one run of each graph, by where the operator runs."
Data = Mapping[str, Any]


def buckets_page(data: Data) -> Page:
    """Return the page of suggested buckets: the effect of their number, and of each bucket."""
    options, best = data["options"], data["options"][-1]
    page = Page("Buckets")
    sequences = f"{counted(data['num_sequences'], 'sequence')}, the longest {data['longest']:,} tokens"
    facts = [
        ("buckets", ", ".join(map(str, best["buckets"])), data["buckets"]["reason"]),
        ("padding", f"{best['waste']:.1%}", f"{best['padding_tokens']:,} tokens"),
        ("padding with one bucket", f"{options[0]['waste']:.1%}", f"{options[0]['padding_tokens']:,} tokens"),
    ]
    page.head(sequences, "Buckets", facts, label="counted")
    bars = [
        {"row": counted(one["num_buckets"], "bucket"), "value": one["waste"], "low": None, "high": None}
        | {"group": "padding", "tip": f"{', '.join(map(str, one['buckets']))}\n{one['waste']:.1%} padding"}
        for one in options
    ]
    page.section("waste", "Number of buckets", _WASTE, page.bars("waste", bars, Axis(label="padding", unit="%")))
    parts = [_bucket_part(one, part) for one in best["per_bucket"] for part in ("real", "padding")]
    page.section("buckets", "Each bucket", _BUCKETS, page.stacked("buckets", parts, unit="tokens"))
    rows = [
        {
            "#number": one["num_buckets"],
            "#waste": f"{one['waste']:.1%}",
            "#padding tokens": f"{one['padding_tokens']:,}",
        }
        | {"buckets": ", ".join(map(str, one["buckets"]))}
        for one in options
    ]
    page.section("options", "All numbers", "", rows_table(rows))
    flags = [{"for": task, "flag": flag} for task, flag in data["flags"].items()]
    page.section("flags", "Flags", "", rows_table(flags))
    return page


def _bucket_part(one: Data, part: str) -> dict[str, Any]:
    num_tokens = one[f"{part}_tokens"]
    tip = f"bucket {one['bucket']}: {counted(one['num_sequences'], 'sequence')}\n{num_tokens:,} {part} tokens"
    return {"row": f"up to {one['bucket']}", "part": part, "value": num_tokens, "tip": tip}


def check_page(data: Data) -> Page:
    """Return the page of a check."""
    page = Page(f"Check of {data['model']}, simulated")
    tier, memory = data["tier"], data["memory"]
    facts = [("tier", f"{tier['value']}, {tier['name']}", listed(tier["reasons"], 1))]
    if data["placed_share"] is not None:
        facts.append(("share of FLOPs on the NeuronCore", f"{data['placed_share']:.1%}", "of the captured graphs"))
    if memory["fits"] is not None:
        facts.append(("memory", "fits" if memory["fits"] else "does not fit", memory["reason"]))
    page.head(f"{data['instance']} ({data['target']['value']})", data["model"], facts)
    shown = [one for one in data["operators"] if one["flops"]][:MAX_BARS]
    bars = [
        {"row": one["op"], "value": one["flops"], "low": None, "high": None, "group": one["verdict"]}
        | {"tip": f"{one['op']}, {counted(one['count'], 'call')}\n{number(one['flops'])} FLOPs, {one['verdict']}"}
        for one in _by_operator(shown)
    ]
    page.section("operators", "Operators", _OPERATORS, page.bars("operators", bars, Axis(label="FLOPs")))
    page.section("memory", "Memory of one core", memory["reason"], memory_plot(page, {"one core": memory["hbm_bytes"]}))
    page.section("obstacles", "Obstacles", "", rows_table(_obstacles(data)))
    graphs = [
        {"graph": one["name"], "#calls": one["num_calls"], "#FLOPs": number(one["flops"])}
        | {"#placed": f"{one['placed_share']:.1%}"}
        for one in data["graphs"]
    ]
    page.section("graphs", "Graphs", "", rows_table(graphs))
    operators = [
        {"operator": one["op"], "#calls": one["count"], "#FLOPs": number(one["flops"]), "verdict": one["verdict"]}
        | {"reason": one["reason"]}
        for one in data["operators"]
    ]
    page.section("all", "All operators", "", rows_table(operators))
    page.section("choices", "Choices", "", rows_table(choice_rows(data)))
    page.section("assumptions", "Assumptions", "No weights are read, and nothing is compiled.", " ")
    return page


def _by_operator(operators: list[Data]) -> Iterator[dict[str, Any]]:
    """Sum rows of an operator with the same verdict."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for one in operators:
        total = sums.setdefault((one["op"], one["verdict"]), {**one, "flops": 0, "count": 0})
        total["flops"] += one["flops"]
        total["count"] += one["count"]
    yield from sums.values()


def _obstacles(data: Data) -> Iterator[dict[str, object]]:
    for one in data["capture_failures"]:
        yield {"what": "cannot be captured", "where": one["source_line"], "reason": one["reason"], "do": ""}
    for one in data["operators"]:
        if one["verdict"] in ("unsupported", "host"):
            where = ", ".join(path or "top level" for path in one["module_paths"])
            yield {
                "what": f"{one['op']}: {one['verdict']}",
                "where": where,
                "reason": one["reason"],
                "do": one["remedy"],
            }


def move_page(data: Data) -> Page:
    """Return the page of a move between two instances."""
    before, after = data["from"], data["to"]
    page = Page(f"{data['model']} from {before} to {after}, simulated")
    changes = data["changes"]
    moved = [one for one in data["operators"] if one["before"] != one["after"]]
    facts = [
        ("changes", str(len(changes)), data["refused_because"] or "what has to be done"),
        ("operators that run elsewhere", str(len(moved)), f"of {len(data['operators'])}"),
    ]
    page.head(f"{before} to {after}", data["model"], facts)
    page.section("changes", "Changes", "", rows_table({"change": str(one)} for one in changes))
    rows = [
        {"operator": one["op"], f"on {before}": one["before"], f"on {after}": one["after"], "reason": one["reason"]}
        for one in moved
    ]
    page.section("operators", "Operators that run elsewhere", "", rows_table(rows))
    subjects = [{"subject": name, before: one["from"], after: one["to"]} for name, one in data["facts"].items()]
    page.section("facts", "Facts", "", rows_table(subjects))
    return page


def benchmarks_page(data: Data) -> Page:
    """Return the page of benchmarks: medians with the range of all rounds, one plot for each unit."""
    page = Page("Benchmarks")
    page.head(
        data["host"],
        "Benchmarks",
        [("benchmarks", str(len(data["results"])), "measured on this host; the target is simulated")],
        label="measured",
    )
    for benchmark, rows in data["results"].items():
        body = ""
        for number_, unit in enumerate(dict.fromkeys(row["unit"] for row in rows)):
            bars = [
                {"row": row["what"], "value": row["value"], "low": row["low"], "high": row["high"], "group": unit}
                | {"tip": f"{row['what']}: {number(row['value'])} {unit}\n{row['note']}"}
                for row in rows
                if row["unit"] == unit
            ]
            body += page.bars(
                f"{benchmark}-{number_}", bars, Axis(label=unit, unit=unit if unit in ("ms", "s") else "")
            )
        table = rows_table(
            {"what": row["what"], "#median": number(row["value"]), "unit": row["unit"], "#lowest": _or_none(row["low"])}
            | {"#highest": _or_none(row["high"]), "note": row["note"]}
            for row in rows
        )
        page.section(benchmark, benchmark.replace("_", " "), "", body + table)
    return page


def _or_none(value: float | None) -> str | None:
    return None if value is None else number(value)
