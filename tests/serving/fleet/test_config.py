"""A fleet is read from Ray Serve's configuration; each wrong field is named. Ray is not needed."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import read_jobs
from optimum_neuron.serving import ModelSpec
from optimum_neuron.serving.fleet import FleetConfig, ReplicaGroup, group_of, parse_fleet, read_fleet
from tests.tree import ROOT

CHAT = {"source": "smollm2", "name": "chat", "options": {"tensor_parallel_size": 2, "batch_size": 4}}
TEXT = """
http_options: {host: 0.0.0.0, port: 9000}
applications:
  - name: chats
    route_prefix: /llm
    import_path: optimum_neuron.serving.fleet:app
    args:
      models:
        - {source: smollm2, name: chat, num_replicas: 3, adapters: {french: ./french}}
      server: {max_queue_size: 7, api_key: [secret]}
      cache_url: s3://bucket/neffs
"""


def test_a_file_of_ray_serve(tmp_path):
    (tmp_path / "serve.yaml").write_text(TEXT)
    fleet = read_fleet(tmp_path / "serve.yaml")
    assert (fleet.application, fleet.route_prefix, fleet.cache_url) == ("chats", "/llm", "s3://bucket/neffs")
    assert (fleet.server.host, fleet.server.port, fleet.server.api_key) == ("0.0.0.0", 9000, ("secret",))
    (group,) = fleet.groups
    assert group.num_replicas == 3 and group.cores_per_replica == 1 and list(group.names) == ["chat", "french"]


def test_the_example_of_the_documentation(tmp_path):
    blocks = (ROOT / "docs" / "fleet.md").read_text().split("```yaml\n")
    fleet_text, models_text = (block.partition("```")[0] for block in blocks[1:])
    (tmp_path / "serve.yaml").write_text(fleet_text)
    groups = read_fleet(tmp_path / "serve.yaml").groups
    facts = [(group.name, group.cores_per_replica, group.is_multiplexed) for group in groups]
    assert facts == [("chat", 1, False), ("embed", 1, False), ("rare", 1, True)]
    (tmp_path / "models.yaml").write_text(models_text)
    assert len(read_jobs(tmp_path / "models.yaml")) == 3


def test_cores_and_requests_of_a_replica():
    group = parse_fleet({"models": [CHAT]}).groups[0]
    assert (group.cores_per_replica, group.ongoing_requests, group.is_multiplexed) == (2, 8, False)
    encoder = {"source": "minilm", "options": {"batch_size": [1, 16]}}
    assert parse_fleet({"models": [encoder]}).groups[0].ongoing_requests == 32
    sizes = {"a": 1, "b": 4, "c": 2}
    three = [{**CHAT, "name": name, "options": {"tensor_parallel_size": size}} for name, size in sizes.items()]
    group = parse_fleet({"models": [{"models": three, "max_models_per_replica": 2, "num_cpus": 2}]}).groups[0]
    assert group.is_multiplexed and group.cores_per_replica == 4 + 2 and group.name == "a"
    assert group_of(ModelSpec(source="org/model", name="org/model")).name == "org-model"


@pytest.mark.parametrize(
    ("args", "option"),
    [
        ({"models": []}, "models"),
        ({"models": "smollm2"}, "models"),
        ({"modles": [CHAT]}, "modles"),
        ({"models": [{**CHAT, "num_replica": 2}]}, "num_replica"),
        ({"models": [{**CHAT, "num_replicas": 0}]}, "num_replicas"),
        ({"models": [{"name": "chat"}]}, "source"),
        ({"models": [{"models": [{"sorce": "a"}]}]}, "sorce"),
        ({"models": [CHAT, CHAT]}, "name"),
        ({"models": [CHAT], "server": {"prot": 1}}, "prot"),
        ({"models": [CHAT], "server": {"port": 8000}}, "port"),
        ({"models": [CHAT], "server": {"max_queue_size": 0}}, "max_queue_size"),
        ([], "the fleet"),
    ],
)
def test_wrong_arguments(args, option):
    with pytest.raises(ConfigError) as error:
        parse_fleet(args)
    assert error.value.details["option"] == option


@pytest.mark.parametrize(
    "text", ["", "[", "applications: []", TEXT.replace("optimum_neuron.serving.fleet:app", "os:system"), "\0"]
)
def test_wrong_files(tmp_path, text):
    (tmp_path / "serve.yaml").write_text(text)
    for path in (tmp_path / "serve.yaml", tmp_path / "missing.yaml"):
        with pytest.raises(ConfigError):
            read_fleet(path)


def test_names_are_used_once():
    spec = ModelSpec(source="a", name="a")
    groups = (ReplicaGroup(name="one", models=(spec,)), ReplicaGroup(name="two", models=(spec,)))
    with pytest.raises(ConfigError):
        FleetConfig(groups=groups)
    with pytest.raises(ConfigError):
        ReplicaGroup(name="empty", models=())
