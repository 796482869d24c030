"""Names of `neuronx_distributed`: each leads to an object, or to the alternative."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest
import torch

from optimum_neuron.base.doors import Missing
from optimum_neuron.errors import ConfigError, ModelError
from tests.tree import ROOT


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setenv("NXD_CPU_MODE", "1")
    monkeypatch.syspath_prepend(ROOT / "sdk")
    for name in [name for name in sys.modules if name.partition(".")[0] == "neuronx_distributed"]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("neuronx_distributed").NAMES


def test_every_name_leads_to_an_object(names):
    for module, rows in names.items():
        needs_lightning = ".lightning" in module and importlib.util.find_spec("lightning") is None
        loaded = importlib.import_module(module)
        for name, target in rows.items():
            if needs_lightning and not isinstance(target, Missing):
                with pytest.raises(ConfigError) as error:
                    getattr(loaded, name)
                assert error.value.details["package"] == "lightning"
                continue
            found = getattr(loaded, name)
            if isinstance(target, Missing):
                with pytest.raises(ModelError):
                    found()


@pytest.mark.parametrize("sequence_parallel_enabled", [False, True])
def test_norms_are_torchs_with_a_mark(names, sequence_parallel_enabled):
    from neuronx_distributed.modules.rms_norm import RMSNorm
    from neuronx_distributed.parallel_layers.layer_norm import LayerNorm

    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    for kind, reference in (
        (RMSNorm, torch.nn.functional.rms_norm(x, [8], eps=1e-5)),
        (LayerNorm, torch.nn.functional.layer_norm(x, [8])),
    ):
        norm = kind(8, sequence_parallel_enabled=sequence_parallel_enabled)
        assert torch.equal(norm(x), reference)
        marks = {parameter.sequence_parallel_enabled for parameter in norm.parameters()}
        assert marks == {sequence_parallel_enabled}


def test_getters_are_those_of_their_groups(names):
    from neuronx_distributed.parallel_layers import parallel_state

    from optimum_neuron.neuronx_distributed import parallel_state as ours

    assert parallel_state.get_tensor_model_parallel_rank == ours.TENSOR.rank
    assert parallel_state.get_data_parallel_replica_groups == ours.DATA.replica_groups
    assert not parallel_state.model_parallel_is_initialized()
