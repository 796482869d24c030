"""The Kubernetes manifest of docs/kuberay is valid, and its fleet, pods, and image fit together."""

from __future__ import annotations

import copy
import json
import shlex

import pytest
import yaml

from tests.tree import ROOT

jsonschema = pytest.importorskip("jsonschema")
FOLDER = ROOT / "docs" / "kuberay"
SCHEMA = json.loads((ROOT / "tests" / "docs" / "rayservice.schema.json").read_text())


@pytest.fixture(scope="module")
def service():
    service, claim = yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text())
    assert claim["kind"] == "PersistentVolumeClaim"
    return service


def validate(service):
    jsonschema.validate(service, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_the_manifest_is_valid(service):
    validate(service)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("apiVersion",), "ray.io/v2"),
        (("spec", "rayClusterConfig", "headGroupSpecs"), {}),
        (("spec", "rayClusterConfig", "workerGroupSpecs", 0, "groupName"), "Inf2_Group"),
        (("spec", "rayClusterConfig", "workerGroupSpecs", 0, "rayStartParams", "num-cpus"), 2),
        (("spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "containers"), []),
    ],
)
def test_the_schema_rejects_mistakes(service, path, value):
    broken = copy.deepcopy(service)
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_the_fleet_fits_its_pods(service, tmp_path):
    pytest.importorskip("fastapi")
    from optimum_neuron.serving.fleet import read_fleet

    (tmp_path / "serve.yaml").write_text(service["spec"]["serveConfigV2"])
    fleet = read_fleet(tmp_path / "serve.yaml")
    (group,), (pods,) = fleet.groups, service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    # KubeRay puts the value on the command line of `ray start`, within a shell.
    (resources,) = shlex.split(pods["rayStartParams"]["resources"])
    cores = json.loads(json.loads(resources) if resources.startswith('"') else resources)["neuron_cores"]
    assert cores >= group.cores_per_replica
    assert pods["maxReplicas"] * cores >= group.autoscaling_config["max_replicas"] * group.cores_per_replica
    mounts = {one["mountPath"] for one in pods["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert any(fleet.cache_url.startswith(mount) for mount in mounts)


def test_ray_accepts_the_configuration(service):
    schema = pytest.importorskip("ray.serve.schema")
    schema.ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))


def test_the_image_is_that_of_the_dockerfile(service):
    text = (FOLDER / "Dockerfile").read_text()
    tag = text.partition("-t ")[2].split()[0]
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert {group["template"]["spec"]["containers"][0]["image"] for group in groups} == {tag}
    copied = [word for line in text.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied and all((ROOT / word).exists() for word in copied)
