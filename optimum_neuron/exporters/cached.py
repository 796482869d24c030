"""Lists the compiled models in the cache, and fills the cache for other users.

Entries are found by the fields that shape a graph, so a fine-tuned checkpoint finds those of its base model. It knows
the requests of `request.py` and nothing of how they are stored.

    cached_entries("smollm2")[0]["sequence_length"]
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ..compiler.cache import CompileCache, Recorded
from ..files.atomic import WorkFolder
from ..files.plain_json import canonical_json
from ..sources import load_source, plain_task
from .build import cached_neff
from .request import installed_versions, structure_of, without_weights


def fill_cache(model_name_or_path: str | Path, *, cache_url: str | None = None, **options: object) -> dict[str, Any]:
    """Compile a model into the cache, unless it is there; weights are not needed and no folder is written.

    Args:
        model_name_or_path: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        cache_url: the cache; None asks NEURON_COMPILE_CACHE_URL.
        **options: as for `main_export`.

    Returns:
        Plain data: `model`, `url`, `result` ("hit" or "miss"), and the `reason`.
    """
    source, config, target, trust = without_weights(model_name_or_path, options)
    cache = CompileCache(cache_url)
    neff = cached_neff(source, config, target.value, cache=cache, workdir=WorkFolder().path, trust_remote_code=trust)
    result, _, reason = neff.reason.partition(": ")
    return {"model": source.name, "url": cache.url, "result": result, "reason": f"{result}: {reason}"}


def cached_entries(
    model_name_or_path: str | Path | None = None,
    *,
    task: str | None = None,
    cache_url: str | None = None,
    **where: object,
) -> list[dict[str, Any]]:
    """List the compiled configurations of one model or of all. Usable ones come first.

    Args:
        model_name_or_path: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        task: List entries for this task only, by its name here or in optimum.
        cache_url: the cache; None asks NEURON_COMPILE_CACHE_URL and the shared cache.
        **where: how the model is found, such as `revision` and `trust_remote_code`.

    Returns:
        Plain data: the options of each compile, `model_type`, `usable` (whether the installed versions find it),
        `entry`, `url`, `size_bytes`, and `age_s`.
    """
    name = None if task is None else plain_task(task)
    records = [one for one in CompileCache(cache_url).recorded() if name in (None, one.request.get("task"))]
    if model_name_or_path is not None:
        config = load_source(model_name_or_path, with_weights=False, **where).config
        structures = {
            of: json.loads(canonical_json(structure_of(config, of), what="structure of a model"))
            for of in {str(one.request.get("task")) for one in records}
        }
        records = [one for one in records if one.request.get("model") == structures[str(one.request.get("task"))]]
    entries = [_describe(one) for one in records]
    return sorted(entries, key=lambda entry: (not entry["usable"], entry["model_type"], entry["age_s"]))


def cached_models(cache_url: str | None = None) -> set[tuple[str, str, str]]:
    """Return model type, organization and name of the models that were compiled by name; folders have no name.

    Args:
        cache_url: the cache; None asks NEURON_COMPILE_CACHE_URL and the shared cache.
    """
    models = set()
    for label in CompileCache(cache_url).labels():
        model_type, _, name = label.partition("/")
        organization, _, name = name.rpartition("/")
        models.add((model_type, organization, name))
    return models


def _describe(one: Recorded) -> dict[str, Any]:
    versions = installed_versions()
    request = one.request
    assert one.entry.marker is not None, "complete entries have one"
    model = request.get("model", {})
    options = {key: value for key, value in request.items() if key not in (*versions, "model") and value is not None}
    return {
        **options,
        "model_type": str(model.get("model_type", "")),
        "usable": all(request.get(name) == version for name, version in versions.items()),
        "entry": one.entry.name,
        "url": one.url,
        "size_bytes": one.entry.size_bytes,
        "age_s": max(0, int(time.time() - one.entry.marker.created_unix_s)),
    }
