"""Pages of capacity plans and sweeps, from their plain data.

plan_page(plan_capacity(model, trace).to_dict()).text()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.wording import counted, number
from .estimates import choice_rows, pareto_front
from .page import Axis, Page, rows_table
from .quantities import shown

_TIMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}
_PARTS = ("mean", "median", "p90", "p99")
_FRONT = (
    "Each point is a configuration with the fewest instances that meet the objective. Configurations on the dashed "
    "line are not beaten in both time and price; those without a replay are in the table only."
)
_OVER_TIME = (
    "The replay in equal spans of simulated time. Requests count where they arrive, tokens where they are made."
)
Data = Mapping[str, Any]


def plan_page(data: Data) -> Page:
    """Return the page of a capacity plan."""
    page = Page(f"Capacity of {data['model']}, simulated")
    page.head(_where(data), data["model"], _facts(data))
    _add_plan(page, data)
    page.remarks(data)
    return page


def sweep_page(data: Data) -> Page:
    """Return the page of a sweep: what was tried, and the plan of the best."""
    page = Page(f"Capacity of {data['model']}, simulated")
    best, choice = data["best"], data["choice"]
    facts = [("best", choice["value"] or "none", choice["reason"])]
    where = f"{counted(data['trace']['num_requests'], 'request')} of {data['trace']['source']}"
    page.head(where, data["model"], [*facts, *([] if best is None else _facts(best))])
    page.section("front", "Cost against time to first token", _FRONT, _front(page, data["tried"]))
    if best is not None:
        _add_plan(page, best)
    page.section("tried", "Configurations", "", rows_table(map(_tried_row, data["tried"])))
    skipped = [{"instance": name, "reason": reason} for name, reason in data["skipped"].items()]
    page.section("skipped", "Skipped", "", rows_table(skipped))
    page.remarks(best or {})
    return page


def _where(data: Data) -> str:
    return f"{counted(data['num_instances'], 'instance')} {data['instance']['value']} ({data['target']})"


def _facts(data: Data) -> list[tuple[str, str, str]]:
    facts = [
        (f"p99 {title}", shown("_ms", data[f"p99_{name}_ms"]), _interval(data, f"p99_{name}_ms"))
        for name, title in _TIMES.items()
        if name in ("ttft", "tpot") and data[f"p99_{name}_ms"] is not None
    ]
    facts.append(("output tokens per second", number(data["output_throughput"]), _interval(data, "output_throughput")))
    if data["usd_per_h"] is not None:
        facts.append(("price of an hour", shown("usd", data["usd_per_h"]), _where(data)))
    if data["slo"] is not None:
        kept = f"{100 * data['slo_attainment']:.2f} %"
        facts.append(("requests that keep the limits", kept, "meets the objective" if data["meets_slo"] else "too few"))
    return facts


def _interval(data: Data, name: str) -> str:
    ends = data["interval"].get(name)
    return "" if ends is None else f"80 % interval {shown(name, ends[0])} to {shown(name, ends[1])}"


def _add_plan(page: Page, data: Data) -> None:
    page.section("replay", "Replay of the trace", _OVER_TIME, _replay(page, data["over_time"]))
    rows = [
        {"time": title, **{f"#{part}": _time(data[f"{part}_{name}_ms"]) for part in _PARTS}}
        | {"#p99, 80 % interval": _interval(data, f"p99_{name}_ms").removeprefix("80 % interval ")}
        for name, title in _TIMES.items()
        if data[f"mean_{name}_ms"] is not None
    ]
    page.section("times", "Times of requests", "", rows_table(rows))
    options = [{"option": name, "#value": value} for name, value in data["configuration"].items()]
    page.section("configuration", "Configuration", "", rows_table(options))
    page.section("choices", "Choices", "", rows_table(choice_rows(data)))


def _replay(page: Page, spans: Sequence[Data]) -> str:
    """Return the plots of a replay over time."""
    plots = {
        "Requests": ({"running": "running", "waiting": "waiting"}, Axis(label="requests")),
        "Arrivals and answers": ({"arrivals_per_s": "arrivals", "answers_per_s": "answers"}, Axis(label="per second")),
        "Output tokens": ({"tokens_per_s": "tokens"}, Axis(label="tokens per second")),
        "Time to first token": ({"median_ttft_ms": "median", "p99_ttft_ms": "p99"}, Axis(label="time", unit="ms")),
    }
    figures = ""
    for title, (names, axis) in plots.items():
        points = [
            {"x": one["begin_s"], "y": one[name], "low": None, "high": None, "series": label}
            | {"tip": f"{label} at {number(one['begin_s'])} s: {_value(name, one[name])}"}
            for name, label in names.items()
            for one in spans
            if one[name] is not None
        ]
        x = Axis(label="simulated time", unit="s")
        figures += f"<div><h3>{title}</h3>{page.lines(f'replay-{title.lower()}', points, x, axis)}</div>"
    return f'<div class="plots">{figures}</div>' if spans else ""


def _value(name: str, value: float) -> str:
    return shown(name, value) if name.endswith("_ms") else number(value)


def _time(value_ms: float) -> str:
    return shown("_ms", value_ms)


def _front(page: Page, tried: Sequence[Data]) -> str:
    points: list[dict[str, Any]] = []
    for one in tried:
        ttft_ms = one["numbers"].get("p99_ttft_ms")
        if ttft_ms is None or one["usd_per_h"] is None:
            continue
        label = f"{one['instance']}, {counted(one['num_cores'], 'core')}, batch {one['batch_size']}"
        tip = f"{label}, chunks {one['prefill_chunk_size']}, {counted(one['num_instances'] or 0, 'instance')}\n"
        tip += f"p99 time to first token {_time(ttft_ms)}, ${number(one['usd_per_h'])} an hour"
        points.append({"x": ttft_ms, "y": one["usd_per_h"], "group": one["instance"], "label": label, "tip": tip})
    front = pareto_front([(point["x"], point["y"]) for point in points])
    points = [{**point, "front": position in front} for position, point in enumerate(points)]
    x, y = (
        Axis(label="p99 time to first token", unit="ms", log=True),
        Axis(label="price of an hour", unit="usd", log=True),
    )
    return page.scatter("front", points, x, y)


def _tried_row(one: Data) -> dict[str, object]:
    numbers = one["numbers"]
    return {
        "instance": one["instance"],
        "#cores": one["num_cores"],
        "#batch": one["batch_size"],
        "#chunks": one["prefill_chunk_size"],
        "#instances": one["num_instances"],
        "#an hour": None if one["usd_per_h"] is None else f"${number(one['usd_per_h'])}",
        "#p99 ttft": _time(numbers["p99_ttft_ms"]) if numbers.get("p99_ttft_ms") is not None else None,
        "#p99 tpot": _time(numbers["p99_tpot_ms"]) if numbers.get("p99_tpot_ms") is not None else None,
        "#kept": f"{100 * numbers['slo_attainment']:.1f} %" if "slo_attainment" in numbers else None,
        "result": one["reason"],
    }
