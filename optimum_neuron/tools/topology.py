"""A drawing of the links between the devices of an instance, for `neuron-ls --topology`.

`--` and `|` are links between neighbors; `*` at both ends of a row or column is a link from the last device to the
first one. It draws what `devices` knows and nothing else.

    print("\\n".join(drawing(devices(INSTANCES["trn1.32xlarge"]))))
"""

from __future__ import annotations

from collections.abc import Sequence

from .devices import Device

_SIDE = 4
"""Devices of a row, where each device has four links."""


def drawing(devices: Sequence[Device]) -> list[str]:
    """Return the lines of a drawing; one line that says so where the links are not known or there are none."""
    if any(device.connected_to is None for device in devices):
        return ["The links between these devices are not documented."]
    if not any(device.connected_to for device in devices):
        return ["The devices of this instance have no links to each other."]
    side = _SIDE if max(len(_links(device)) for device in devices) > 2 else len(devices)
    rows = [devices[start : start + side] for start in range(0, len(devices), side)]
    lines: list[str] = []
    for place, row in enumerate(rows):
        server = place // _SIDE * _SIDE  # a torus has as many rows as columns
        first, last = rows[server], rows[min(server + _SIDE, len(rows)) - 1]
        if place == server and _wraps(first, last):
            lines.append(_columns("*", row))
        lines.append(_row(row))
        if row is not last:
            lines.append(_columns("|", row))
        elif _wraps(first, last):
            lines.append(_columns("*", row))
    return lines


def _links(device: Device) -> tuple[int, ...]:
    return device.connected_to or ()


def _wraps(first: Sequence[Device], last: Sequence[Device]) -> bool:
    return first is not last and last[0].index in _links(first[0])


def _row(row: Sequence[Device]) -> str:
    joined = "--".join(f"[{device.index:^4}]" for device in row)
    ring = len(row) > 2 and row[-1].index in _links(row[0])
    return f"*-{joined}-*" if ring else f"  {joined}"


def _columns(mark: str, row: Sequence[Device]) -> str:
    return ("  " + "  ".join(f"{mark:^6}" for _ in row)).rstrip()
