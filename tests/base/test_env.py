"""Environment variables: read in one place, refused when they cannot be used."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest

import optimum_neuron
from optimum_neuron.base import env
from optimum_neuron.errors import ConfigError
from tests.tree import syntax

FLAGS = {
    "OPTIMUM_NEURON_DEBUG": (env.debug, False),
    "NEURON_RT_VALIDATE_HASH": (env.validate_hash, True),
    "HF_HUB_DISABLE_PROGRESS_BARS": (env.progress_disabled, False),
}


@pytest.mark.parametrize(("name", "read", "default"), [(n, *v) for n, v in FLAGS.items()], ids=FLAGS)
def test_switches(name, read, default):
    assert read({}) is default
    for text in ("1", "true", "YES", " on "):
        assert read({name: text}) is True
    for text in ("0", "False", "no", "off", ""):
        assert read({name: text}) is False
    for text in ("2", "y es", "enable"):
        with pytest.raises(ConfigError) as error:
            read({name: text})
        assert error.value.details == {"variable": name, "value": text}


def test_folders():
    assert env.home({"OPTIMUM_NEURON_HOME": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert env.home({"XDG_CACHE_HOME": "/b"}) == Path("/b/optimum_neuron")
    assert env.home({"OPTIMUM_NEURON_HOME": ""}) == Path.home() / ".cache" / "optimum_neuron"
    assert env.compile_cache_url({"OPTIMUM_NEURON_HOME": "/a"}) == "/a/neff"
    assert env.compile_cache_url({"NEURON_COMPILE_CACHE_URL": "s3://bucket/x"}) == "s3://bucket/x"


def test_names_are_passed_on_unchecked_and_empty_is_unset():
    names = {"NEURON_PLATFORM_TARGET_OVERRIDE": env.platform_target, "OPTIMUM_NEURON_INSTANCE": env.instance_type}
    names |= {"OPTIMUM_NEURON_API_KEY": env.api_key}
    for name, read in names.items():
        assert read({name: "anything"}) == "anything"
        assert read({name: ""}) is None and read({}) is None


def test_flags_of_compiler():
    environ = {"NEURON_CC_FLAGS": "--cache_dir=/a --target trn1 --no_cache -O1 --cache_dir s3://b/c --target=trn2"}
    assert env.compile_cache_url({**environ, "NEURON_COMPILE_CACHE_URL": "/d"}) == "s3://b/c"
    assert env.no_compile_cache(environ) and not env.no_compile_cache({})
    assert env.compiler_target(environ) == "trn2" and env.compiler_target({}) is None
    assert env.compiler_flags(environ) == ("--target", "trn1", "-O1", "--target=trn2")
    assert env.compiler_flags({}) == ()


@pytest.mark.parametrize("text", ["--cache_dir", "--cache_dir= -O1", "--cache_dir -O1", "'--cache_dir=/a"])
def test_invalid_compiler_flags(text):
    with pytest.raises(ConfigError) as error:
        env.compile_cache_url({"NEURON_CC_FLAGS": text})
    assert error.value.details == {"variable": "NEURON_CC_FLAGS", "value": text}


def test_sizes_of_logical_cores_are_collected_by_their_source():
    environ = {"NEURON_LOGICAL_NC_CONFIG": "2", "NEURON_RT_VIRTUAL_CORE_SIZE": "1", "NEURON_CC_FLAGS": "--lnc=2"}
    assert list(env.logical_nc_config(environ).values()) == [2, 1, 2] and env.logical_nc_config({}) == {}
    with pytest.raises(ConfigError):
        env.logical_nc_config({"NEURON_LOGICAL_NC_CONFIG": "two"})


def test_profiles_of_processes():
    assert env.inspect_folder({"NEURON_RT_INSPECT_OUTPUT_DIR": "a"}) is None
    assert env.inspect_folder({"NEURON_RT_INSPECT_ENABLE": "1"}) == Path("output")
    assert env.inspect_folder({"NEURON_RT_INSPECT_ENABLE": "1", "NEURON_RT_INSPECT_OUTPUT_DIR": "a"}) == Path("a")


def test_set_variables_are_listed_verbatim():
    environ = {"OPTIMUM_NEURON_HOME": "/a", "PATH": "/bin", "NEURON_RT_NUM_CORES": ""}
    assert env.given(environ) == {"OPTIMUM_NEURON_HOME": "/a"}


def test_number_of_cores():
    assert [env.num_cores({"NEURON_RT_NUM_CORES": text}) for text in ("0", "8", "", "064")] == [0, 8, None, 64]
    assert env.num_cores({}) is None
    for text in ("-1", "1.5", "two", " ", "\u00b2"):
        with pytest.raises(ConfigError) as error:
            env.num_cores({"NEURON_RT_NUM_CORES": text})
        assert error.value.details == {"variable": "NEURON_RT_NUM_CORES", "value": text}


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,6", (0, 1, 6)), ("6, 0-1", (6, 0, 1)), ("4-4", (4,)), (" ", None)],
)
def test_visible_cores(text, cores):
    assert env.visible_cores({"NEURON_RT_VISIBLE_CORES": text}) == cores
    assert env.visible_cores({}) is None


INVALID_CORES = ["a", "0,", "-1", "3-1", "0-", "0--2", "1.5", "0-1-2", "0;1", "\u00b2", "0-\u00b2", "0,0", "0-3,2"]


@pytest.mark.parametrize("text", INVALID_CORES)
def test_invalid_list_of_cores_is_error(text):
    with pytest.raises(ConfigError) as error:
        env.visible_cores({"NEURON_RT_VISIBLE_CORES": text})
    assert error.value.details == {"variable": "NEURON_RT_VISIBLE_CORES", "value": text}


def test_environment_is_read_on_request(monkeypatch):
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    assert env.num_cores() == 2
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "3")
    assert env.num_cores() == 3


def test_every_variable_read_is_listed_and_vice_versa():
    read = Path(env.__file__).read_text().split("def home", 1)[1]
    assert {name for name in env.VARIABLES if name in read} == env.VARIABLES.keys()
    assert list(env.VARIABLES) == sorted(env.VARIABLES)


def named(node, attribute):
    """Return whether a node is `os.<attribute>`."""
    return isinstance(node, ast.Attribute) and node.attr == attribute and getattr(node.value, "id", "") == "os"


def test_only_env_module_reads_environment():
    root, result = Path(optimum_neuron.__file__).parent, []
    for path in root.rglob("*.py"):
        for node in ast.walk(syntax(path)):
            reads = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and named(node.value, "environ")
            reads |= isinstance(node, ast.Attribute) and named(node.value, "environ") and node.attr == "get"
            if reads and path.name != "env.py" or named(node, "getenv"):
                result.append(f"{path.relative_to(root)}:{node.lineno}")
    assert result == []


def test_home_is_private_under_any_umask(tmp_path):
    before = os.umask(0o002)
    try:
        env.make_home({"OPTIMUM_NEURON_HOME": str(tmp_path / "home")})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    env.make_home(
        {"OPTIMUM_NEURON_HOME": str(tmp_path / "file" / "home")}
    )  # the file is in the way: the next write reports it
