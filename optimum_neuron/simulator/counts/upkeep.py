"""List the files of counts, and remove old, damaged, and unusable ones.

counts_status()["num_entries"]
prune_counts(older_than_days=30)["freed_bytes"]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...plain_json import parse_json
from .store import counts_folder, versions

_DAY_S = 86400


def counts_status() -> dict[str, Any]:
    """Return the folder, the number of its files, their size, and how many other versions wrote."""
    entries = list(_entries())
    return {
        "folder": str(counts_folder()),
        "num_entries": len(entries),
        "size_bytes": sum(size_bytes for _, size_bytes, _ in entries),
        "num_unusable": sum(problem is not None for _, _, problem in entries),
    }


def prune_counts(
    *, older_than_days: float | None = None, unusable: bool = True, everything: bool = False, dry_run: bool = False
) -> list[dict[str, Any]]:
    """Remove files of counts, and return the name, reason, and size of each.

    Args:
        older_than_days: remove those written longer ago.
        unusable: remove those of other versions, and damaged ones.
        everything: remove all.
        dry_run: only list them.
    """
    removed = []
    for path, size_bytes, problem in _entries():
        age_days = (time.time() - path.stat().st_mtime) / _DAY_S
        if everything:
            reason = "all counts"
        elif problem is not None and unusable:
            reason = problem
        elif older_than_days is not None and age_days > older_than_days:
            reason = f"{age_days:.0f} days old"
        else:
            continue
        removed.append({"name": f"counts/{path.name}", "reason": reason, "size_bytes": size_bytes})
        if not dry_run:
            path.unlink(missing_ok=True)
    return removed


def _entries() -> Iterator[tuple[Path, int, str | None]]:
    """Yield each file with its size, and the reason why this version cannot use it, or None."""
    for path in sorted(counts_folder().glob("*.json")):
        try:
            size_bytes = path.stat().st_size
            data = parse_json(path.read_bytes())
            problem = None if data["key"]["versions"] == versions() else "counts of another version"
        except FileNotFoundError:  # another process removed it
            continue
        except (OSError, ValueError, TypeError, LookupError):
            problem = "damaged counts"
        yield path, size_bytes, problem
