"""`optimum-cli neuron serve --ray` and its file, up to Ray; `tests/serving/fleet/` tests what a fleet answers."""

from __future__ import annotations

import pytest

from optimum_neuron.base.core import Choice

TEXT = """
applications:
  - import_path: optimum_neuron.serving.fleet:app
    args: {models: [{source: smollm2, name: chat, num_replicas: 3}]}
"""


@pytest.fixture
def served(fake_module):
    """Fleets that would have been served, with their addresses."""
    import optimum_neuron.serving.fleet as fleet

    calls = []

    def serve_on_ray(config, *, address, on_listening):
        calls.append((config, address))
        on_listening("http://here:8000", Choice(value="local", reason="a test"))

    names = ("FleetConfig", "group_of", "read_fleet")
    fake_module(
        "optimum_neuron.serving.fleet", serve_on_ray=serve_on_ray, **{name: getattr(fleet, name) for name in names}
    )
    return calls


def test_models_get_replicas_and_the_cache(cli, served, monkeypatch):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/neffs")
    words = ("smollm2", "--ray", "--num_replicas", "2", "--max_replicas", "5", "--tensor_parallel_size", "2")
    result = cli("neuron", "serve", *words, "--ray_address", "head:6379", "--json")
    assert result.code == 0 and result.json["groups"][0]["replicas"] == "2 to 5"
    ((fleet, address),) = served
    (group,) = fleet.groups
    assert address == "head:6379" and fleet.cache_url == "s3://bucket/neffs"
    assert group.autoscaling_config == {"min_replicas": 2, "max_replicas": 5} and group.cores_per_replica == 2


def test_a_file_is_served_at_another_port(cli, served, tmp_path):
    (tmp_path / "serve.yaml").write_text(TEXT)
    result = cli("neuron", "serve", str(tmp_path / "serve.yaml"), "--port", "9001")
    assert result.code == 0 and "chat" in result.stdout
    ((fleet, address),) = served
    assert address is None and fleet.server.port == 9001 and fleet.groups[0].num_replicas == 3


@pytest.mark.parametrize(
    "words",
    [
        ("smollm2", "--max_replicas", "2"),
        ("smollm2", "--ray", "--max_connections", "2"),
        ("smollm2", "--simulate", "poisson:1", "--input_length", "1", "--output_length", "1", "--ray"),
        ("serve.yaml", "--batch_size", "2"),
        ("missing.yaml",),
    ],
)
def test_options_that_make_no_sense_together(cli, served, words):
    result = cli("neuron", "serve", *words, "--json")
    assert result.code == 1 and result.json["error"]["type"] == "ConfigError" and not served
