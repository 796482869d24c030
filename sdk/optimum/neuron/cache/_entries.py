"""What a cached model is for, as scripts of Optimum Neuron write it down: plain data, which `hub_neuronx_cache` takes.

Every compile records its own model and options, so these decide nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ModelCacheEntry:
    """A model and its task."""

    model_id: str
    """Folder or id on the Hub."""
    model_type: str
    """Its architecture."""
    task: str
    """Task of the compiled model."""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, init=False)
class SingleModelCacheEntry(ModelCacheEntry):
    """A model of transformers.

    Args:
        model_id: folder or id on the Hub.
        task: task of the compiled model.
        config: its configuration.
        neuron_config: options of the compile.
    """

    config: dict[str, Any]
    """The model's configuration."""
    neuron_config: dict[str, Any] | None
    """Options of the compile."""

    def __init__(self, model_id: str, task: str, config: Any, neuron_config: Any = None) -> None:
        plain = _plain(config)
        ModelCacheEntry.__init__(self, model_id, plain["model_type"], task)
        object.__setattr__(self, "config", plain)
        object.__setattr__(self, "neuron_config", None if neuron_config is None else _plain(neuron_config))


@dataclasses.dataclass(frozen=True, init=False)
class MultiModelCacheEntry(ModelCacheEntry):
    """A pipeline of several models.

    Args:
        model_id: folder or id on the Hub.
        configs: configuration of each component, by its name.
    """

    configs: dict[str, dict[str, Any]]
    """Configuration of each component."""

    def __init__(self, model_id: str, configs: Mapping[str, Any]) -> None:
        ModelCacheEntry.__init__(self, model_id, "pipeline", "text-to-image")
        object.__setattr__(self, "configs", {name: _plain(config) for name, config in configs.items()})


def _plain(config: Any) -> dict[str, Any]:
    return dict(config if isinstance(config, Mapping) else config.to_dict())
