"""A profile at a glance, from its plain data: totals, the longest operators as bars and as a table, and notes.

It knows no `Profile`, whose notebook view it is; timelines and single calls are in `report.py`.

    overview(profile.to_dict(top=20)).text()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..base.wording import counted, time_span
from ..pages import Axis, Page, rows_table


def overview(data: Mapping[str, Any]) -> Page:
    """Return the page of a profile's plain data."""
    page = Page(f"Profile of {data['name']}, simulated")
    total = data["total_us"]
    around = f"80 % interval {_span(total['low'])} to {_span(total['high'])}"
    calls = f"{counted(data['num_calls'], 'call')} of {counted(len(data['graphs']), 'graph')}"
    facts = [("device", _span(data["device_us"]), calls), ("host and device", _span(total["value"]), around)]
    page.head(", ".join(machine["instance"] for machine in data["machines"]), data["name"], facts)
    rows, num_rows = list(_rows(data)), data["num_rows"]
    lead = "" if num_rows == len(rows) else f"The {len(rows)} longest of {num_rows} rows."
    bars = [
        {
            "row": f"{number} {row['operator']}",
            "value": row["time_us"],
            "group": row["bound"],
            "low": None,
            "high": None,
            "tip": row["module_path"],
        }
        for number, row in enumerate(data["operators"], 1)
    ]
    plot = page.bars("operators", bars, Axis(label="time of all calls, us (simulated)"))
    page.section("operators", "Operators", lead, plot + rows_table(rows))
    page.remarks(data)
    return page


def _rows(data: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    for number, row in enumerate(data["operators"], 1):
        yield {
            "#": number,
            "operator": row["operator"],
            "module": row["module_path"],
            "graph": row["graph"],
            "bound by": row["bound"],
            "# calls": row["num_calls"],
            "# time": _span(row["time_us"]),
            "# share": f"{row['share']:.1%}",
        }


def _span(us: float) -> str:
    return time_span(us / 1e6)
