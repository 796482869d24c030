"""`optimum-cli neuron cache`: list the compile cache, look up a request, explain a miss, and prune.

The commands that share a cache with others are in `cache_shared.py`.

The store is `optimum_neuron.compiler.cache.CompileCache`; the fields that a model asks it for come from
`optimum_neuron.exporters.cache_request`, so that a lookup asks exactly what an export would.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, duration, size
from .arguments import add_compile_arguments, add_model, nonnegative, options_from, whole_number
from .cache_shared import (
    CacheAddCommand,
    CacheCreateCommand,
    CacheListCommand,
    CacheSetCommand,
    CacheSynchronizeCommand,
    add_cache,
)
from .cache_warm import CacheWarmCommand
from .output import Out
from .parser import Command, CommandGroup, subcommands
from .peer_arguments import add_peer_arguments

if TYPE_CHECKING:
    from ..compiler.cache import CompileCache
    from ..files.records import Records

logger = logging.getLogger(__name__)


class CacheStatusCommand(Command):
    COMMAND = CommandInfo(name="status", help="List what the compile cache holds.")
    DESCRIPTION = """List the entries of the compile cache with state, size, age, and model.

Without --cache_dir, the counts of estimates and the comparisons that passed are summed up too.
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_cache(parser, "--cache_dir")

    def execute(self, out: Out) -> None:
        from ..compiler.cache import CompileCache

        status = CompileCache(self.args.url).status() | _shared(self.args)
        if self.args.url is None:
            status["records"] = {kind.name: kind.status() for kind in _records()}
        out.result(status, human=show_status, brief=str(status["num_entries"]))


class CacheLookupCommand(Command):
    COMMAND = CommandInfo(name="lookup", help="Check whether the cache has the NEFF of an export.")
    DESCRIPTION = """Check whether the cache has the NEFF of an export with these options; compiles nothing.

  optimum-cli neuron cache lookup smollm2 --sequence_length 2048
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        _add_request(parser)

    def execute(self, out: Out) -> None:
        cache, fields = _request(self.args)
        choice = cache.lookup(fields)
        result = "miss" if choice.value is None else "hit"
        data = {"model": self.args.model, "url": cache.url, "result": result, "entry": choice.to_dict()}
        out.result(data, human=show_lookup, brief=result)
        if result == "miss":
            words = sys.argv[sys.argv.index("lookup") + 1 :]
            out.hint(f"optimum-cli neuron cache explain {shlex.join(words)}")


class CacheExplainCommand(Command):
    COMMAND = CommandInfo(name="explain", help="Say why an export would compile again.")
    DESCRIPTION = """Explain why an export with these options hits or misses: the nearest entries and their differences.

  optimum-cli neuron cache explain smollm2 --sequence_length 2048
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        _add_request(parser)

    def execute(self, out: Out) -> None:
        cache, fields = _request(self.args)
        data = {"model": self.args.model, "url": cache.url, **cache.explain(fields)}
        out.result(data, human=show_explanation, brief="hit" if data["hit"] else "miss")


class CachePruneCommand(Command):
    COMMAND = CommandInfo(name="prune", help="Remove incomplete, old or surplus entries.")
    DESCRIPTION = """Remove unusable entries, and entries beyond the limits. Entries being compiled stay.
Without --cache_dir, unusable and old counts of estimates and comparisons are removed too; --wipe removes all.

  optimum-cli neuron cache prune --older_than_days 30 --dry_run
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--older_than_days", type=nonnegative, metavar="N", help="remove entries older than this")
        parser.add_argument(
            "--max_size_bytes",
            type=whole_number,
            metavar="N",
            help="remove the oldest entries until the rest fits in this size",
        )
        parser.add_argument("--keep_incomplete", action="store_true", help="keep unusable entries")
        parser.add_argument("--old-versions", action="store_true", help="remove entries of other compiler versions")
        parser.add_argument("--wipe", action="store_true", help="remove all entries")
        parser.add_argument("--all", action="store_true", help="the default: remove failed and empty entries")
        parser.add_argument("--dry-run", action="store_true", help="only list the entries to remove")
        add_cache(parser, "--cache_dir")

    def execute(self, out: Out) -> None:
        from ..compiler.cache import CompileCache

        options = options_from(self.args, "older_than_days", "max_size_bytes", "old_versions", "dry_run")
        if self.args.keep_incomplete:
            options["incomplete"] = False
        if self.args.wipe:
            options["max_size_bytes"] = 0
        if self.args.all:
            logger.info("--all changes nothing: entries that failed and empty ones are removed without it.")
        pruned = CompileCache(self.args.url).prune(**options)
        if self.args.url is None:
            pruned = _with_records(pruned, self.args)
        out.result(pruned, human=show_pruned, brief=str(pruned["freed_bytes"]))


class CacheCleanupCommand(CachePruneCommand):
    COMMAND = CommandInfo(name="cleanup", help="The same as prune.")


class CacheCommand(CommandGroup):
    COMMAND = CommandInfo(name="cache", help="Look into the compile cache and clean it up.")
    SUBCOMMANDS = subcommands(
        CacheAddCommand,
        CacheCleanupCommand,
        CacheCreateCommand,
        CacheExplainCommand,
        CacheListCommand,
        CacheLookupCommand,
        CachePruneCommand,
        CacheSetCommand,
        CacheStatusCommand,
        CacheSynchronizeCommand,
        CacheWarmCommand,
    )


def show_status(out: Out, status: Mapping[str, Any]) -> None:
    """Render the entries of a cache, and of its spool if there is one."""
    entries = counted(status["num_entries"], "entry", "entries")
    out.text(f"{status['url']}: {entries}, {size(status['size_bytes'])}")
    if status.get("shared"):
        out.text(f"shared with others: {status['shared']['value']} ({status['shared']['reason']})")
    rows = [
        {
            "compiled for": entry["summary"] if entry["state"] == "success" else entry["reason"],
            "state": entry["state"],
            "size": size(entry["size_bytes"]),
            "age": "" if entry["age_s"] is None else duration(entry["age_s"]),
            "name": entry["name"],
        }
        for entry in status["entries"]
    ]
    if rows:
        out.table(rows)
    if status.get("spool"):
        out.text()
        out.text("kept on this machine for it:")
        show_status(out, status["spool"])

    for name, records in status.get("records", {}).items():
        entries = counted(records["num_entries"], "record")
        text = f"{_RECORDS[name]} in {records['folder']}: {entries}, {size(records['size_bytes'])}"
        out.text(f"{text}, {records['num_unusable']} of other versions or damaged" if records["num_unusable"] else text)


def show_lookup(out: Out, data: Mapping[str, Any]) -> None:
    entry = data["entry"]
    out.text(f"{data['model']} in {data['url']}: {entry['value'] or 'not cached'}")
    out.text(entry["reason"])
    out.table(entry["rejected"], ("candidate", "reason"))


def show_explanation(out: Out, data: Mapping[str, Any]) -> None:
    """Render why a request hits or misses, one row per field that differs."""
    out.text(f"{data['model']} in {data['url']}: {'hit' if data['hit'] else 'miss'}, {data['reason']}")
    for near in data["nearest"]:
        out.text()
        out.table(near["differences"], ("field", "asked", "cached"), title=near["entry"])
    if not data["hit"] and not data["nearest"]:
        out.text(f"none of the {data['num_compared']} other entries is similar")


def show_pruned(out: Out, pruned: Mapping[str, Any]) -> None:
    removed = (*pruned["removed"], *pruned["spool_removed"], *pruned.get("records_removed", ()))
    rows = [{**item, "size": size(item["size_bytes"])} for item in removed]
    if rows:
        out.table(rows, ("name", "size", "reason"))
    verb = "would free" if pruned["dry_run"] else "freed"
    out.text(f"{verb} {size(pruned['freed_bytes'])}: {counted(len(rows), 'file or folder', 'files and folders')}")


_RECORDS = {
    "counts": "counts of estimates",
    "validated": "comparisons of validated models",
    "budgets": "values of budgets",
}


def _records() -> tuple[Records, ...]:
    from ..budgets import BUDGETS
    from ..exporters import COMPARISONS
    from ..simulator import COUNTS

    return (COUNTS, COMPARISONS, BUDGETS)


def _with_records(pruned: Mapping[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Prune records by the same limits; a size does not limit them, because they are small."""
    limits = {"older_than_days": args.older_than_days, "unusable": not args.keep_incomplete}
    limits |= {"everything": args.wipe, "dry_run": args.dry_run}
    removed = [item for kind in _records() for item in kind.prune(**limits)]
    freed_bytes = pruned["freed_bytes"] + sum(item["size_bytes"] for item in removed)
    return {**pruned, "records_removed": removed, "freed_bytes": freed_bytes}


def _add_request(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_compile_arguments(parser)
    add_peer_arguments(parser)
    add_cache(parser)


def _shared(args: argparse.Namespace) -> dict[str, Any]:
    from ..compiler.cache import shared_url

    shared = shared_url()
    return {"shared": None if shared.value is None or args.url is not None else shared.to_dict()}


def _request(args: argparse.Namespace) -> tuple[CompileCache, Mapping[str, Any]]:
    from ..compiler.cache import CompileCache
    from ..exporters import cache_request

    cache, fields = cache_request(args.model, **options_from(args, without=("model", "url")))
    return cache if args.url is None else CompileCache(args.url), fields
