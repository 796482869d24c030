"""Module paths and source lines of nodes."""

import inspect
import sysconfig
import types
from pathlib import Path

import pytest
import torch

from optimum_neuron.compiler import rules
from optimum_neuron.compiler.rules import module_path, source_line
from optimum_neuron.compiler.rules.call import merge_paths


def node(path):
    return types.SimpleNamespace(meta={"nn_module_stack": {"root": ("", "Model"), "key": (path, "Layer")}})


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("model.layers.3.mlp", "model.layers.3.mlp"),
        ("", ""),
        ("model.layers.slice(None, 2, None).0.mlp", "model.layers.0.mlp"),
        ("model.layers.0.mlp@1", "model.layers.0.mlp"),
        ("L['self'].model.norm", "model.norm"),
        ("L['fn'].1", "1"),
        ("L['critic'].head", "critic.head"),
    ],
)
def test_module_paths_drop_tracing_prefixes(raw, clean):
    assert module_path(node(raw)) == clean


def test_nodes_of_a_backward_have_the_module_of_their_forward():
    assert (
        module_path(types.SimpleNamespace(meta={"fwd_nn_module_stack": {"key": ("model.norm", "Norm")}}))
        == "model.norm"
    )


def test_node_without_origin_has_no_location():
    empty = types.SimpleNamespace(meta={})
    assert module_path(empty) is None and source_line(empty) is None


class Projects(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


def test_source_line_is_in_user_code(export, monkeypatch, tmp_path):
    call = next(n for n in export(Projects(), torch.randn(4)).graph.nodes if n.op == "call_function")
    assert "torch/nn/modules/linear.py" in call.meta["stack_trace"]
    line = inspect.getsourcelines(Projects.forward)[1] + 1
    monkeypatch.chdir(tmp_path)
    assert source_line(call) == f"{__file__}:{line}"


@pytest.mark.parametrize(
    ("paths", "merged"),
    [
        (["layers.0.mlp", "layers.1.mlp", "layers.2.mlp"], ("layers.0-2.mlp",)),
        (["layers.0", "layers.2", "layers.1", "layers.7"], ("layers.0-2,7",)),
        (["layers.0.mlp", "layers.0.mlp"], ("layers.0.mlp",)),
        (
            ["layers.0.experts.1", "layers.1.experts.1", "layers.0.experts.2"],
            ("layers.0-1.experts.1", "layers.0.experts.2"),
        ),
        (["head", "", "head"], ("head", "")),
    ],
)
def test_paths_of_equal_layers_are_joined(paths, merged):
    assert merge_paths(paths) == merged


def test_places_are_named_from_the_folder_of_packages_or_of_the_program(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    packages = Path(sysconfig.get_path("purelib"))
    own = Path(rules.__file__).parents[2]
    frames = {
        str(packages / "transformers" / "model.py"): "transformers/model.py:7",
        str(tmp_path / "train.py"): "train.py:7",
        "/elsewhere/train.py": "/elsewhere/train.py:7",
        str(Path(torch.__file__).parent / "nn" / "linear.py"): None,
        str(own / "tracing" / "compile.py"): None,
        str(own / "models" / "llama.py"): f"{own / 'models' / 'llama.py'}:7",
    }
    for file, place in frames.items():
        assert source_line(types.SimpleNamespace(meta={"stack_trace": f'File "{file}", line 7, in forward'})) == place
