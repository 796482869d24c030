"""Pages of estimates, comparisons, and estimates of training, from their plain data.

estimate_page(estimate(model).to_dict() | {"grid": estimate_grid(model)}).text()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.wording import counted, size
from .page import Axis, Page, rows_table
from .quantities import TRAINING_QUANTITIES, interval, priced, shown, titles_of

_FACTS = ("ttft_ms", "tpot_ms", "tokens_per_s", "usd_per_1m", "hbm_bytes_per_core")
_FACTS_OF_RUNS = ("latency_ms", "throughput_per_s", "usd_per_1m", "hbm_bytes_per_core")
MAX_LABELS, MAX_LINES, MAX_ROWS = 5, 6, 20
"""Labels in the plot of costs, lines over the batch size, and bars of memory."""
_NOT_PARTS = ("total", "available")
_GRID = (
    "Batch sizes and compiled lengths around the request; each prompt has half of the length. Bands: 80 % intervals."
)
_BATCHES = "Times over the batch size, of the first options in the ranking by generation and cores."
_MEMORY = "What one core has to hold, by category; the mark is the HBM that it has."
_ENGINES = "Time that each engine is busy in one run. Engines overlap, so the times do not add up."
_FRONT = (
    "Each point is a machine with a number of cores and a batch size; lines are 80 % intervals. Options on the dashed "
    "line are not beaten in both time and price."
)
Data = Mapping[str, Any]


def estimate_page(data: Data) -> Page:
    """Return the page of an estimate; `grid` in its data are the rows of `estimate_grid`, if there are any."""
    page = Page(f"Estimate of {data['model']}, simulated")
    where = f"{data['instance']['value']} ({data['target']}), {counted(data['num_cores']['value'], 'core')} a replica"
    names = _FACTS if data["tpot_ms"] is not None else _FACTS_OF_RUNS
    page.head(where, data["model"], list(_facts(data, titles_of(data), names)))
    page.section("grid", "Batch size and length", _GRID, grid_plots(page, data.get("grid", ())))
    page.section("quantities", "Quantities", "", rows_table(quantity_rows(data, titles_of(data))))
    page.section("memory", "Memory of one core", _MEMORY, memory_plot(page, {"one core": data["hbm_bytes"]}))
    parts = [
        {"row": f"{graph}, {engine}", "value": time_ms, "low": None, "high": None, "group": engine}
        | {"tip": f"{engine} in {graph}\n{shown('_ms', time_ms)}"}
        for graph, engines in data["parts_ms"].items()
        for engine, time_ms in engines.items()
        if time_ms
    ]
    page.section("engines", "Engines", _ENGINES, page.bars("engines", parts, Axis(label="time of one run", unit="ms")))
    page.section("choices", "Choices", "", rows_table(choice_rows(data)))
    page.remarks(data)
    return page


def grid_plots(page: Page, grid: Sequence[Data]) -> str:
    """Return plots of the times over length, a line for each batch size."""
    titles = {"ttft_ms": "Time to first token", "tpot_ms": "Time per output token"}
    plots = []
    for name, title in titles.items():
        points = [_grid_point(one, name) for one in grid if one[name] is not None]
        x, y = Axis(label="compiled length, tokens", log=True), Axis(label=title.lower(), unit="ms", log=True)
        if plot := page.lines(f"grid-{name}", points, x, y):
            plots.append(f"<div><h3>{title}</h3>{plot}</div>")
    return f'<div class="plots">{"".join(plots)}</div>' if plots else ""


def _grid_point(one: Data, name: str) -> dict[str, Any]:
    quantity = one[name]
    tip = f"batch {one['batch_size']}, length {one['sequence_length']:,}\n{_with_interval(name, quantity)}"
    ends = {"y": quantity["value"], "low": quantity["low"], "high": quantity["high"]}
    return {"x": one["sequence_length"], **ends, "series": f"batch {one['batch_size']}", "tip": tip}


def comparison_page(data: Data) -> Page:
    """Return the page of a comparison."""
    ranked, best = data["ranked"], data["best"]
    page = Page(f"Comparison of {data['model']}, simulated")
    facts = [
        ("best", best["value"], best["reason"]),
        *_facts(ranked[0], titles_of(ranked[0]), ("latency_ms", "usd_per_1m")),
    ]
    page.head(f"{counted(len(ranked), 'option')}, by {data['goal']}", data["model"], facts)
    page.section("front", "Cost against latency", _FRONT, cost_plot(page, ranked))
    batches = list(_batch_points(ranked))
    if len({point["x"] for point in batches}) > 1:
        page.section("batches", "Batch size", _BATCHES, _batch_plots(page, batches))
    memory = {f"{option_of(one)}, batch {one['batch_size']}": one["hbm_bytes"] for one in ranked[:MAX_ROWS]}
    lead = _MEMORY if len(ranked) <= MAX_ROWS else f"{_MEMORY} The first {MAX_ROWS} options."
    page.section("memory", "Memory of one core", lead, memory_plot(page, memory))
    rejected = [{"option": one["candidate"], "reason": one["reason"]} for one in best["rejected"]]
    skipped = [{"option": name, "reason": reason} for name, reason in data["skipped"].items()]
    page.section("rejected", "Rejected and skipped", "", rows_table([*rejected, *skipped]))
    page.section("ranked", "All options", "", rows_table(_ranked_rows(ranked)))
    page.remarks(ranked[0])
    return page


def _batch_points(ranked: Sequence[Data]) -> Iterator[dict[str, Any]]:
    """Yield points of the first options by generation and cores: sizes of one family have the same times."""
    first: dict[tuple[str, int | None], Data] = {}
    for one in ranked:
        series = f"{one['target']}, {counted(one['num_cores']['value'], 'core')}"
        first.setdefault((series, one["batch_size"]), one)
    names = list(dict.fromkeys(series for series, _ in first))[:MAX_LINES]
    for (series, batch_size), one in sorted(first.items(), key=lambda item: item[0][1] or 0):
        for name in ("ttft_ms", "tpot_ms"):
            if one[name] is not None and batch_size and series in names:
                tip = f"{series}, batch {batch_size}\n{_with_interval(name, one[name])}"
                yield {"x": batch_size, "y": one[name]["value"], "series": series, "name": name, "tip": tip}


def cost_plot(page: Page, options: Sequence[Data]) -> str:
    """Return the plot of price over latency, with the options that no other one beats in both."""
    points: list[dict[str, Any]] = []
    for one in options:
        if one["usd_per_1m"] is None:
            continue
        label = f"{option_of(one)}, batch {one['batch_size']}"
        times = {f"x{end}": one["latency_ms"][name] for end, name in _ENDS.items()}
        prices = {f"y{end}": one["usd_per_1m"][name] for end, name in _ENDS.items()}
        tip = f"{label}\nlatency {_with_interval('latency_ms', one['latency_ms'])}\n"
        tip += f"per million {priced(one)} {_with_interval('usd_per_1m', one['usd_per_1m'])}"
        points.append({**times, **prices, "group": one["target"], "label": label, "tip": tip})
    front = pareto_front([(point["x"], point["y"]) for point in points])
    labels = set(sorted(front, key=lambda number: points[number]["x"])[:: -(-len(front) // MAX_LABELS) or 1])
    points = [
        {**point, "front": number in front, "label": point["label"] if number in labels else ""}
        for number, point in enumerate(points)
    ]
    unit = priced(options[0]) if options else ""
    x, y = (
        Axis(label="latency of a request", unit="ms", log=True),
        Axis(label=f"per million {unit}", unit="usd", log=True),
    )
    return page.scatter("front", points, x, y)


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def pareto_front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Return the positions of the points that no other point beats in one value without losing in the other.

    >>> pareto_front([(1.0, 5.0), (2.0, 2.0), (3.0, 3.0), (4.0, 1.0)])
    {0, 1, 3}
    """
    front, least = set(), float("inf")
    for number in sorted(range(len(points)), key=lambda number: points[number]):
        if points[number][1] < least:
            front.add(number)
            least = points[number][1]
    return front


def training_page(data: Data) -> Page:
    """Return the page of an estimate of training."""
    page = Page(f"Training of {data['model']}, simulated")
    names = ("tokens_per_s", "step_ms", "usd_per_1m_tokens", "mfu")
    facts = list(_facts(data, TRAINING_QUANTITIES, names))
    page.head(f"{data['num_instances']} x {data['instance']['value']}", data["model"], facts)
    page.section("memory", "Memory of one core", _MEMORY, memory_plot(page, {"one core": data["hbm_bytes"]}))
    page.section("quantities", "Quantities", "", rows_table(quantity_rows(data, TRAINING_QUANTITIES)))
    page.section("choices", "Choices", "", rows_table(choice_rows(data)))
    page.remarks(data)
    return page


def memory_plot(page: Page, memories: Mapping[str, Mapping[str, int | None]]) -> str:
    """Return stacked bars of the HBM of cores, by what each bar is for; `available` is its limit."""
    rows = [
        {"row": row, "part": part, "value": value, "tip": f"{row}\n{part}: {size(value)}"}
        for row, memory in memories.items()
        for part, value in memory.items()
        if part not in _NOT_PARTS and value is not None
    ]
    limits = [{"row": row, "value": memory["available"]} for row, memory in memories.items()]
    return page.stacked("memory", rows, limits=limits)


def option_of(one: Data) -> str:
    """Return the instance and the cores of an estimate."""
    return f"{one['instance']['value']}, {counted(one['num_cores']['value'], 'core')}"


def quantity_rows(data: Data, titles: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the rows of a table of quantities."""
    return [
        {"quantity": title, "#value": shown(name, one["value"]), "#80 % interval": interval(name, one)}
        | {"limited by": one.get("limited_by")}
        for name, title in titles.items()
        if (one := data.get(name)) is not None
    ]


def choice_rows(data: Data) -> list[dict[str, object]]:
    """Return the rows of a table of the automatic choices in a result."""
    return [
        {"what": name.replace("_", " "), "value": one["value"], "reason": one["reason"]}
        for name, one in data.items()
        if isinstance(one, Mapping) and "reason" in one and "value" in one
    ]


def _facts(data: Data, titles: Mapping[str, str], names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        if (one := data.get(name)) is not None:
            yield titles[name], shown(name, one["value"]), f"80 % interval {interval(name, one)}"


def _with_interval(name: str, quantity: Data) -> str:
    return f"{shown(name, quantity['value'])} ({interval(name, quantity)})"


def _batch_plots(page: Page, points: Sequence[Mapping[str, Any]]) -> str:
    plots = ""
    for name, title in {"ttft_ms": "Time to first token", "tpot_ms": "Time per output token"}.items():
        own = [
            {key: value for key, value in point.items() if key != "name"} for point in points if point["name"] == name
        ]
        x, y = Axis(label="batch size", log=True), Axis(label=title.lower(), unit="ms", log=True)
        plots += f"<div><h3>{title}</h3>{page.lines(f'batches-{name}', own, x, y)}</div>"
    return f'<div class="plots">{plots}</div>'


def _ranked_rows(ranked: Sequence[Data]) -> Iterator[dict[str, object]]:
    for one in ranked:
        quantities = {
            f"#{title}": None if one[name] is None else shown(name, one[name]["value"])
            for name, title in titles_of(one).items()
            if name in ("ttft_ms", "tpot_ms", "latency_ms", "tokens_per_s", "throughput_per_s", "usd_per_1m")
        }
        yield {
            "instance": one["instance"]["value"],
            "#cores": one["num_cores"]["value"],
            "#copies": one["num_copies"]["value"],
            "#batch": one["batch_size"],
            **quantities,
            "memory": one["fit"],
        }
