"""`optimum-cli neuron cache warm CONFIG`: compile a list of models for a fleet.

The work is `optimum_neuron.exporters.warm_cache`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, time_span
from .arguments import positive_int
from .cache_shared import add_cache
from .output import Out
from .parser import Command

if TYPE_CHECKING:
    from ..exporters import Warmed, WarmJob


class CacheWarmCommand(Command):
    COMMAND = CommandInfo(name="warm", help="Compile a list of models into the cache, several at once.")
    DESCRIPTION = """Compile a list of models into the cache: on a Ray cluster, or in processes of this machine.

  optimum-cli neuron cache warm models.yaml
  optimum-cli neuron cache warm models.yaml --url s3://bucket/neffs --ray_address auto

Models that are in the cache are not compiled again, so an interrupted run goes on where it was.
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "config",
            metavar="CONFIG",
            help="YAML or JSON with a list `models`: model, task, instance, and options of each",
        )
        parser.add_argument(
            "--num_workers",
            type=positive_int,
            metavar="N",
            help="models at once (default: CPUs of the cluster, or as many as this machine has memory for)",
        )
        parser.add_argument(
            "--ray_address",
            metavar="ADDRESS",
            help="Ray cluster (default: one that runs on this machine, else processes)",
        )
        add_cache(parser)

    def execute(self, out: Out) -> int:
        from ..exporters import read_jobs

        data = _warm(read_jobs(self.args.config), self.args, out).to_dict()
        summary = f"{data['hits']} hits, {data['compiled']} compiled, {data['failed']} failed"
        out.result(data, human=show_warmed, brief=summary)
        if data["failed"]:
            out.hint(f"optimum-cli neuron cache warm {shlex.quote(self.args.config)}  # the others are hits now")
            return 1
        out.hint("optimum-cli neuron cache list")
        return 0


def _warm(jobs: list[WarmJob], args: argparse.Namespace, out: Out) -> Warmed:
    from tqdm import tqdm

    from ..exporters import warm_cache

    with tqdm(total=len(jobs), desc="Compiling", unit="model", file=out.stderr, leave=False) as bar:

        def note(result: Any) -> None:
            bar.set_postfix_str(f"{result.job.model}: {result.result}")
            bar.update()

        return warm_cache(
            jobs, cache_url=args.url, num_workers=args.num_workers, ray_address=args.ray_address, on_done=note
        )


def show_warmed(out: Out, data: Mapping[str, Any]) -> None:
    """Render hits and compiles as a table, and failures by their kind."""
    workers = data["workers"]
    out.text(f"{counted(len(data['results']), 'model')} with {workers['value']} ({workers['reason']})")
    rows = [
        {"model": one["model"], "options": one["job"], "result": one["result"], "time": time_span(one["seconds"])}
        for one in data["results"]
    ]
    out.table(rows)
    out.text(f"{counted(data['hits'], 'hit')}, {data['compiled']} compiled, {data['failed']} failed")
    for kind in data["failures"]:
        out.text()
        out.text(f"{kind['type']} of {counted(len(kind['jobs']), 'model')}:")
        for job in kind["jobs"]:
            out.text(f"  {job['model']} ({job['job']}): {job['message'].splitlines()[0]}")
        if kind["hint"]:
            out.text(f"  {kind['hint']}")
