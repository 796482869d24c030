"""Fields of transformers' `ContinuousBatchingConfig`: settings, sizes that a program has fixed, and others."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from transformers import ContinuousBatchingConfig

from optimum_neuron.batching.settings import ManagerSettings, read_settings
from optimum_neuron.errors import ConfigError
from tests.raising import raises

RUNNER = SimpleNamespace(block_size=8, num_blocks=10, num_rows=3, chunk_sizes=(8, 12, 16))


def test_settings_are_read_and_the_defaults_are_those_of_transformers(caplog):
    assert read_settings(None, RUNNER) == read_settings(ContinuousBatchingConfig(), RUNNER) == ManagerSettings()
    own = {"max_queue_size": 3, "return_logprobs": True, "seed": 5, "allow_block_sharing": False}
    sizes = {"page_size": 8, "num_blocks": 10, "max_batch_tokens": 16, "max_requests_per_batch": 3}
    with caplog.at_level(logging.INFO):
        settings = read_settings(ContinuousBatchingConfig(**own, **sizes), RUNNER)
    assert settings == ManagerSettings(**own)
    assert not [record for record in caplog.records if record.name.startswith("optimum_neuron")]
    resolved = settings.resolved(RUNNER)
    assert resolved.block_size is None, "transformers' former name of page_size, which it warns of"
    assert {name: getattr(resolved, name) for name in (*own, *sizes)} == own | sizes


@pytest.mark.parametrize(
    ("name", "value"), [("page_size", 16), ("num_blocks", 9), ("max_batch_tokens", 8), ("max_requests_per_batch", 4)]
)
def test_other_sizes_are_refused(name, value):
    compiled = {"page_size": 8, "num_blocks": 10, "max_batch_tokens": 16, "max_requests_per_batch": 3}[name]
    with raises(ConfigError, option=name, value=value, compiled=compiled):
        read_settings(ContinuousBatchingConfig(**{name: value}), RUNNER)


def test_settings_without_effect_are_logged_and_unknown_ones_refused(caplog):
    with caplog.at_level(logging.INFO):
        assert read_settings(ContinuousBatchingConfig(max_cached_graphs=5), RUNNER) == ManagerSettings()
    (record,) = [record for record in caplog.records if record.name.startswith("optimum_neuron")]
    assert "max_cached_graphs" in record.getMessage()
    with raises(ConfigError, option="scheduler_type", value="prefill_first"):
        read_settings(ContinuousBatchingConfig(scheduler_type="prefill_first"), RUNNER)
