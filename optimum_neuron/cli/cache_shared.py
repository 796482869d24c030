"""Commands around a compile cache that several people share: make it, choose it, fill it, list it, copy to it.

The cache is a repository of the Hub, an fsspec URL or a folder; `optimum_neuron.compiler.cache.shared` chooses it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, duration, size
from ..errors import ConfigError
from .arguments import add_compile_arguments, add_model, options_from
from .output import Out, cell
from .parser import Command
from .peer_arguments import add_peer_arguments

_COLUMNS = ("task", "model_type", "batch_size", "sequence_length", "torch_dtype", "target", "usable", "age", "entry")


class CacheCreateCommand(Command):
    COMMAND = CommandInfo(name="create", help="Make a cache to share, and choose it.")
    DESCRIPTION = """Create a shared compile cache, and select it as `set` does.

  optimum-cli neuron cache create -n my-org/neuron-cache
  optimum-cli neuron cache create -n /mnt/team/neuron-cache
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-n", "--name", help="repository of the Hub, fsspec URL or folder (default: optimum-neuron-cache, yours)"
        )
        parser.add_argument("--public", action="store_true", help="let everyone read a new repository")

    def execute(self, out: Out) -> None:
        from ..compiler.cache import create

        url = create(self.args.name, public=self.args.public)
        out.result({"shared": url}, human=show_chosen, brief=url)


class CacheSetCommand(Command):
    COMMAND = CommandInfo(name="set", help="Choose the cache to share with others.")
    DESCRIPTION = """Select the shared compile cache, queried after the local one. CUSTOM_CACHE_REPO has precedence.

  optimum-cli neuron cache set my-org/neuron-cache
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="repository of the Hub, fsspec URL or folder; it must exist")

    def execute(self, out: Out) -> None:
        from ..compiler.cache import choose

        url = choose(self.args.name)
        out.result({"shared": url}, human=show_chosen, brief=url)


class CacheAddCommand(Command):
    COMMAND = CommandInfo(name="add", help="Compile a model into the cache, without exporting it.")
    DESCRIPTION = """Compile a model into the cache. No weights are downloaded, and no folder is written.

  optimum-cli neuron cache add -m smollm2 --sequence_length 2048
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_model(parser, "-m", "--model")
        add_compile_arguments(parser)
        add_peer_arguments(parser)
        add_cache(parser)

    def execute(self, out: Out) -> None:
        from ..exporters import fill_cache

        options = options_from(self.args, without=("model", "url"))
        added = fill_cache(self.args.model, cache_url=self.args.url, **options)
        out.result(added, human=show_added, brief=added["result"])


class CacheListCommand(Command):
    COMMAND = CommandInfo(name="list", help="List compiled configurations, of one model or of all.")
    DESCRIPTION = """List the configurations for which a model is compiled, here and in the shared cache.

  optimum-cli neuron cache list smollm2
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_model(parser, nargs="?")
        parser.add_argument("--task", help="list configurations for this task only")
        parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own Python code")
        add_cache(parser)

    def execute(self, out: Out) -> None:
        from ..exporters import cached_entries, cached_models

        url, options = self.args.url, options_from(self.args, "task", "trust_remote_code")
        entries = cached_entries(self.args.model, cache_url=url, **options)
        models = [] if self.args.model else ["/".join(filter(None, names)) for names in sorted(cached_models(url))]
        data = {"model": self.args.model, "entries": entries, "models": models}
        out.result(data, human=show_entries, brief=str(len(entries)))


class CacheSynchronizeCommand(Command):
    COMMAND = CommandInfo(name="synchronize", help="Copy entries of this machine to the shared cache.")
    DESCRIPTION = """Copy complete entries of the cache of this machine to the shared cache. Nothing is removed there.

  optimum-cli neuron cache synchronize
  optimum-cli neuron cache synchronize --repo_id my-org/neuron-cache
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--repo_id", metavar="NAME", help="destination (default: the cache selected by `set`)")
        parser.add_argument("--dry-run", action="store_true", help="only list the entries to copy")
        parser.add_argument("--url", "--cache_dir", help="cache to copy from (default: NEURON_COMPILE_CACHE_URL)")

    def execute(self, out: Out) -> None:
        from ..compiler.cache import CompileCache

        copied = CompileCache(self.args.url).synchronize(self.args.repo_id, dry_run=self.args.dry_run)
        out.result(copied, human=show_copied, brief=str(len(copied["copied"])))


def add_cache(parser: argparse.ArgumentParser, *aliases: str) -> None:
    """Add the options that name a cache; aliases are further names of `--url`."""
    named = parser.add_mutually_exclusive_group()
    named.add_argument("--url", *aliases, help="folder or fsspec URL of the cache (default: NEURON_COMPILE_CACHE_URL)")
    named.add_argument("--repo_id", dest="url", type=_address, metavar="NAME", help="the same, or a Hub repository")


def show_chosen(out: Out, data: Mapping[str, Any]) -> None:
    out.text(f"compiles look into {data['shared']} after the cache of this machine")
    out.hint("optimum-cli neuron cache synchronize")


def show_added(out: Out, added: Mapping[str, Any]) -> None:
    out.text(f"{added['model']} in {added['url']}: {added['reason']}")


def show_entries(out: Out, data: Mapping[str, Any]) -> None:
    """Render configurations, one row each, and the names of models."""
    entries = data["entries"]
    of = f" for {data['model']}" if data["model"] else ""
    out.text(f"{counted(len(entries), 'compiled configuration')}{of}")
    rows = [
        {**{name: cell(value) for name, value in entry.items()}, "age": duration(entry["age_s"])} for entry in entries
    ]
    if rows:
        out.table(rows, _COLUMNS)
    if data["models"]:
        out.text()
        out.text(f"models: {', '.join(data['models'])}")


def show_copied(out: Out, copied: Mapping[str, Any]) -> None:
    if copied["copied"]:
        out.table([{**item, "size": size(item["size_bytes"])} for item in copied["copied"]], ("name", "size"))
    verb = "would copy" if copied["dry_run"] else "copied"
    num = counted(len(copied["copied"]), "entry", "entries")
    out.text(f"{verb} {num} to {copied['url']}, which has {copied['num_present']} already")


def _address(name: str) -> str:
    from ..compiler.cache import url_of

    try:
        return url_of(name)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
