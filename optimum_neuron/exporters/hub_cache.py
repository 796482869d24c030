"""Optimum Neuron's functions for its cache on the Hub, on the compile cache of this package.

Upstream reads a repository; these functions read the cache of this machine too, as every compile does. `cache_repo_id`
names the shared cache; None uses the selected one.

    get_hub_cached_entries("smollm2", cache_repo_id="my-org/neuron-cache")
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..compiler.cache import CompileCache, kept_in, using
from .cached import cached_entries, cached_models

logger = logging.getLogger(__name__)


def get_hub_cached_entries(
    model_id: str | Path, task: str | None = None, cache_repo_id: str | None = None
) -> list[dict[str, Any]]:
    """List the configurations for which a model is compiled, for a task or for all; see `cached_entries`.

    Those of decoders have `tp_degree` too, Optimum Neuron's name for `tensor_parallel_size`.
    """
    with _shared(cache_repo_id):
        entries = cached_entries(model_id, task=task)
    size = "tensor_parallel_size"
    return [entry | ({"tp_degree": entry[size]} if size in entry else {}) for entry in entries]


def select_hub_cached_entries(
    model_id: str | Path,
    task: str | None = None,
    cache_repo_id: str | None = None,
    instance_type: str | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    tensor_parallel_size: int | None = None,
    torch_dtype: object = None,
) -> list[dict[str, Any]]:
    """List the configurations of `get_hub_cached_entries` that this installation can use and that have these options.

    Args:
        model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        task: Task of the model.
        cache_repo_id: the shared cache.
        instance_type: target or instance, such as trn2.
        batch_size: batch size.
        sequence_length: tokens per sequence.
        tensor_parallel_size: cores that share the model.
        torch_dtype: dtype of the weights, as text or as a torch.dtype.

    Raises:
        ConfigError: an option has a value that is not supported.
    """
    from ..hardware import resolve_target

    expected: dict[str, Any] = {
        "target": None if instance_type is None else resolve_target(instance_type).value.name,
        "batch_size": batch_size,
        "sequence_length": sequence_length,
        "tensor_parallel_size": tensor_parallel_size,
        "torch_dtype": None if torch_dtype is None else str(torch_dtype).removeprefix("torch."),
    }
    return [
        entry
        for entry in get_hub_cached_entries(model_id, task=task, cache_repo_id=cache_repo_id)
        if entry["usable"] and all(value is None or entry.get(name) == value for name, value in expected.items())
    ]


def get_hub_cached_models(cache_repo_id: str | None = None) -> set[tuple[str, str, str]]:
    """Return model type, organization and name of each model that was compiled by its name; see `cached_models`."""
    with _shared(cache_repo_id):
        return cached_models()


def synchronize_hub_cache(
    cache_path: str | Path | None = None, cache_repo_id: str | None = None, non_blocking: bool = False
) -> dict[str, Any] | Future[dict[str, Any]]:
    """Copy the entries of a cache, or of the one in NEURON_COMPILE_CACHE_URL, to the shared cache.

    Args:
        cache_path: the cache; None asks NEURON_COMPILE_CACHE_URL.
        cache_repo_id: the shared cache.
        non_blocking: copy in a thread, and return the future of the result, which has the error if there is one.

    Returns:
        The result of `CompileCache.synchronize`.
    """
    cache = CompileCache(cache_path)
    if not non_blocking:
        return cache.synchronize(cache_repo_id)
    thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
    try:
        return thread.submit(contextvars.copy_context().run, cache.synchronize, cache_repo_id)
    finally:
        thread.shutdown(wait=False)


@contextlib.contextmanager
def hub_neuronx_cache(
    entry: object = None, cache_repo_id: str | None = None, cache_dir: str | Path | None = None
) -> Iterator[None]:
    """Share a cache inside a block: each compile in the block looks there before it starts.

    Args:
        entry: Has no effect here, because every compile records its own.
        cache_repo_id: the shared cache.
        cache_dir: the cache of this machine inside the block; None asks NEURON_COMPILE_CACHE_URL.
    """
    if entry is not None:
        logger.info("entry=%r changes nothing: every compile records what it was for.", entry)
    with _shared(cache_repo_id), contextlib.nullcontext() if cache_dir is None else kept_in(cache_dir):
        yield


def get_local_cache_status(cache_dir: str | Path | None = None) -> dict[str, Any]:
    """Describe the entries of a cache, or of the one in NEURON_COMPILE_CACHE_URL; see `CompileCache.status`."""
    return CompileCache(cache_dir).status()


def cleanup_local_cache(
    cache_dir: str | Path | None = None, *, old_versions: bool = False, wipe: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """Remove entries that cannot be used; see `CompileCache.prune`.

    Args:
        cache_dir: the cache; None asks NEURON_COMPILE_CACHE_URL.
        old_versions: remove entries of other versions of the compiler too.
        wipe: remove all entries.
        dry_run: Only list the entries to remove.
    """
    limit = 0 if wipe else None
    return CompileCache(cache_dir).prune(max_size_bytes=limit, old_versions=old_versions, dry_run=dry_run)


def _shared(name: str | None) -> contextlib.AbstractContextManager[object]:
    """Share the named cache inside a block; without a name, the selected one is shared anyway."""
    return contextlib.nullcontext() if name is None else using(name)
