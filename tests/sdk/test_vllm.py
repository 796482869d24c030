"""Who may import `vllm`, and its names; `tests/vllm_neuron/` tests what they do."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from optimum_neuron.base.doors import AS_PROGRAM
from tests.finders import ask_all_finders_first
from tests.tree import ROOT

INSTALLED = "/lib/python3/site-packages/{0}/__init__.py"
LOOKS = "import importlib.util; found = importlib.util.find_spec('vllm') is not None"
IMPORTS = "import vllm"


@pytest.fixture
def ask(monkeypatch) -> Callable[..., dict[str, Any]]:
    """Run code as a package in site-packages, or as a script."""
    monkeypatch.syspath_prepend(ROOT / "sdk_vllm")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv("OPTIMUM_NEURON_VLLM", raising=False)
    importlib.import_module("optimum_neuron_sim_vllm")
    assert not [name for name in sys.modules if name.partition(".")[0] == "vllm"]

    def run(code: str, package: str | None) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": package or "__main__"}
        exec(compile(code, INSTALLED.format(package) if package else "/home/user/chat.py", "exec"), names)
        return names

    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("package", "chosen", "is_found"),
    [
        (None, None, True),
        ("acme", None, False),
        ("neuronx_acme.layers", None, True),
        ("acme", "1", True),
        (None, "0", False),
        ("neuronx_acme", "0", False),
    ],
)
def test_scripts_find_it_and_libraries_do_not(ask, monkeypatch, package, chosen, is_found):
    if chosen is not None:
        monkeypatch.setenv("OPTIMUM_NEURON_VLLM", chosen)
    assert ask(LOOKS, package)["found"] is is_found
    if not is_found:
        with pytest.raises(ModuleNotFoundError, match="OPTIMUM_NEURON_VLLM") as excinfo:
            ask(IMPORTS, package)
        assert excinfo.value.name == "vllm"


def test_scripts_find_it_beside_other_finders(ask, monkeypatch):
    ask_all_finders_first(monkeypatch)
    assert ask(LOOKS, None)["found"] and not ask(LOOKS, "acme")["found"]


def test_it_refuses_beside_the_real_one(ask, monkeypatch, tmp_path):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("__version__ = 'real'")
    monkeypatch.syspath_prepend(tmp_path)
    assert ask("import vllm; version = vllm.__version__", None)["version"] == "real"  # a clone without metadata
    del sys.modules["vllm"]
    metadata = tmp_path / "vllm-0.11.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.11.0\n")
    with pytest.raises(ImportError, match=r"optimum-neuron-sim-vllm.*vllm 0\.11\.0 are both installed.*pip uninstall"):
        ask(IMPORTS, None)
    assert ask("import vllm; version = vllm.__version__", "acme")["version"] == "real"
    program = importlib.import_module("optimum_neuron_sim_vllm._program")
    with pytest.raises(ImportError, match="are both installed"):
        program.main()


def test_every_name_is_there(ask):
    from optimum_neuron_sim_vllm._names import NAMES

    ask(IMPORTS, None)
    for module, rows in NAMES.items():
        loaded = importlib.import_module(module)
        for name in sorted(set(rows) - {AS_PROGRAM}):
            getattr(loaded, name)


PROGRAM = """
import importlib.util, sys
sys.path.insert(0, {folder!r})
import optimum_neuron_sim_vllm
from trl.import_utils import is_vllm_available
import transformers, trl
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
assert not is_vllm_available() and not GRPOConfig("out", use_cpu=True, bf16=False).use_vllm
assert "vllm" not in sys.modules
print("unchanged")
"""


@pytest.mark.full(days=7)  # TRL takes 15 s to import
def test_trl_does_not_see_it():
    pytest.importorskip("trl")
    program = PROGRAM.format(folder=str(ROOT / "sdk_vllm"))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["unchanged"], result.stderr[-2000:]


@pytest.mark.full(days=7)
def test_lm_eval_does_not_see_it(ask):
    pytest.importorskip("lm_eval")
    with pytest.raises(ModuleNotFoundError) as excinfo:  # as without the distribution
        importlib.import_module("lm_eval.models.vllm_causallms")
    assert excinfo.value.name == "vllm" and "vllm" not in sys.modules
