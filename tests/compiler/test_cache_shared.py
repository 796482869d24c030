"""A cache that several machines share: choosing it, reading from it, copying to it."""

import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import fsspec
import huggingface_hub
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from huggingface_hub.errors import LocalTokenNotFoundError

from optimum_neuron.base import env
from optimum_neuron.compiler.cache import FILE, CompileCache, choose, create, entry_name, shared_url, url_of, using
from optimum_neuron.compiler.cache.shared import DEFAULT_NAME
from optimum_neuron.compiler.cache.storage import HubStorage, open_storage
from optimum_neuron.errors import CacheError, ConfigError
from tests.neffs import compile_tiny as produce, never

FIELDS = {"compiler_version": "2.21", "target": "inf2", "sequence_length": 128}
REQUEST = {"model": "m"}
NAME = entry_name(FIELDS)


@pytest.fixture(autouse=True)
def one_machine(tmp_path, monkeypatch):
    """No choice of the developer's, and caches of the test."""
    monkeypatch.delenv("CUSTOM_CACHE_REPO", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    use_machine(monkeypatch, tmp_path, "a")


def use_machine(monkeypatch, tmp_path, name):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / name))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / name / "neff"))


@pytest.fixture(params=["folder", "memory"])
def shared(request, tmp_path):
    if request.param == "folder":
        (tmp_path / "team").mkdir()
        yield str(tmp_path / "team")
    else:
        url = f"memory://team-{uuid.uuid4().hex}"
        yield url
        fs = fsspec.filesystem("memory")
        if fs.exists(url):
            fs.rm(url, recursive=True)


def test_name_is_repository_folder_or_address():
    assert url_of("org/name") == url_of("hf://org/name") == "hf://org/name"
    assert [url_of(name) for name in ("/a", "./a/b", "~/a", "s3://b/c")] == ["/a", "./a/b", "~/a", "s3://b/c"]
    for name in ("name", "a/b/c", "org/name@main", ""):
        with pytest.raises(ConfigError):
            url_of(name)


def test_cache_choice_precedence(tmp_path, monkeypatch):
    (tmp_path / "team").mkdir()
    assert shared_url().value is None
    assert choose(str(tmp_path / "team")) == str(tmp_path / "team") == shared_url().value
    assert (tmp_path / "hf" / FILE).read_text() == f"{tmp_path}/team\n"
    monkeypatch.setenv("CUSTOM_CACHE_REPO", "org/name")
    assert shared_url().value == "hf://org/name"
    with using("memory://b"):
        assert shared_url().value == "memory://b"
    assert shared_url().value == "hf://org/name"


def test_only_existing_cache_can_be_selected(tmp_path):
    with pytest.raises(CacheError):
        choose(str(tmp_path / "none"))
    with pytest.raises(CacheError):
        choose("nosuchscheme://x")
    assert shared_url().value is None
    assert create(str(tmp_path / "none")) == shared_url().value and (tmp_path / "none").is_dir()


def test_repositories_are_created_and_checked(monkeypatch):
    objects = []

    def create_repo(api, name, *, private, exist_ok):
        objects.append((name, private, exist_ok))
        return SimpleNamespace(repo_id=name if "/" in name else f"me/{name}")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", lambda api, name: None)
    monkeypatch.setattr(HubStorage, "size_bytes", lambda storage, path: None)
    assert create() == f"hf://me/{DEFAULT_NAME}" and create("org/name", public=True) == "hf://org/name"
    assert objects == [(DEFAULT_NAME, True, True), ("org/name", False, True)]
    assert (env.hf_home() / FILE).read_text() == "org/name\n"


class UnreachableError(Exception):
    """As HTTP libraries raise it: no `OSError`."""


@pytest.mark.parametrize("error", [LocalTokenNotFoundError("no token"), UnreachableError("")])
def test_hub_error_and_unreachable_hub_are_errors(error, monkeypatch):
    def refused(api, name, **options):
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", refused)
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refused)
    for use in (lambda: choose("org/other"), lambda: create("org/other"), create):
        with pytest.raises(CacheError) as excinfo:
            use()
        assert excinfo.value.__cause__ is error
    assert shared_url().value is None


def test_entry_synchronized_by_one_machine_is_found_by_another(shared, tmp_path, monkeypatch):
    choose(shared)
    CompileCache().get_or_compile(FIELDS, produce, request=REQUEST, label="llama/org/m")
    dry = CompileCache().synchronize(dry_run=True)
    assert [item["name"] for item in dry["copied"]] == [NAME] and open_storage(shared).files() == {}
    assert CompileCache().synchronize()["copied"] == dry["copied"]
    assert CompileCache().synchronize() == {"url": shared, "dry_run": False, "copied": [], "num_present": 1}

    use_machine(monkeypatch, tmp_path, "b")
    cache = CompileCache()
    assert cache.lookup(FIELDS).value == NAME
    assert cache.labels() == {"llama/org/m"} and cache.recorded()[0].request == REQUEST
    result = cache.find(REQUEST)
    assert result.value == tmp_path / "b" / "neff" / NAME / "model.neff" and shared in result.reason
    # This machine no longer needs the shared cache.
    with using("memory://empty"):
        assert CompileCache().find(REQUEST).value == result.value
        assert CompileCache().get_or_compile(FIELDS, never).hit


def test_miss_is_compiled_here_and_not_in_shared_cache(shared):
    choose(shared)
    result = CompileCache().get_or_compile(FIELDS, produce, request=REQUEST)
    assert not result.hit and result.stored and open_storage(shared).files() == {}


def test_explicit_cache_is_the_only_one(shared, tmp_path):
    choose(shared)
    CompileCache().get_or_compile(FIELDS, produce)
    CompileCache().synchronize()
    assert CompileCache(tmp_path / "named").lookup(FIELDS).value is None
    with pytest.raises(CacheError), using("nosuchscheme://x"):
        CompileCache()


def test_damaged_and_unfinished_entries_are_not_copied(shared, tmp_path):
    CompileCache().get_or_compile(FIELDS, produce)
    neff = tmp_path / "a" / "neff" / NAME / "model.neff"
    neff.write_bytes(neff.read_bytes()[:-1] + b"?")
    assert CompileCache().synchronize(shared)["copied"] == []


def test_synchronizing_needs_destination():
    with pytest.raises(ConfigError):
        CompileCache().synchronize()


def test_spool_of_unwritable_remote_cache_is_copied(tmp_path):
    CompileCache().get_or_compile(FIELDS, produce)
    remote = CompileCache(f"memory://{tmp_path.name}", spool=tmp_path / "a" / "neff")
    assert [item["name"] for item in remote.synchronize()["copied"]] == [NAME]


class FakeHub(MemoryFileSystem):
    """The Hub's file system, in memory."""

    protocol = "hf"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("hf://").strip("/")


@pytest.fixture
def commits(monkeypatch):
    """Commits to repositories of a Hub that is in memory."""
    objects = []

    def create_commit(api, repo_id, operations, *, commit_message):
        objects.append((repo_id, [operation.path_in_repo for operation in operations]))
        for operation in operations:
            hub.pipe_file(f"/{repo_id}/{operation.path_in_repo}", Path(operation.path_or_fileobj).read_bytes())

    monkeypatch.setattr(FakeHub, "store", {})
    monkeypatch.setattr(FakeHub, "pseudo_dirs", [""])
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "hf", FakeHub)
    monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", create_commit)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", lambda api, name: None)
    hub = fsspec.filesystem("hf")
    return objects


def test_repository_gets_one_commit_and_answers_other_machines(commits, tmp_path, monkeypatch):
    CompileCache().get_or_compile(FIELDS, produce, request=REQUEST)
    assert choose("org/name") == "hf://org/name" and CompileCache().synchronize()["num_present"] == 0
    assert commits[0] == ("org/name", [f"{NAME}/model.neff", f"{NAME}/fields.json", f"{NAME}/model.done"])
    assert len(commits) == 2  # the second has the request
    assert CompileCache().synchronize()["num_present"] == 1 and len(commits) == 2
    use_machine(monkeypatch, tmp_path, "b")
    assert CompileCache().find(REQUEST).value == tmp_path / "b" / "neff" / NAME / "model.neff"
    assert CompileCache("hf://org/name", spool=tmp_path / "c").status()["num_entries"] == 1


def test_labels_of_removed_entries_are_removed(tmp_path):
    cache = CompileCache()
    cache.get_or_compile(FIELDS, produce, request=REQUEST, label="llama/org/m")
    cache.get_or_compile({**FIELDS, "sequence_length": 64}, produce, request={"model": "n"}, label="llama/../../n")
    assert cache.labels() == {"llama/org/m"}
    removals = cache.prune(old_versions=True)["removed"]
    assert NAME in [item["name"] for item in removals] and cache.labels() == set() and cache.recorded() == []
    assert not [path for path in (tmp_path / "a" / "neff").rglob("*.json")]
