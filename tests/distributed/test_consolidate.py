"""The weights of a checkpoint become a folder that from_pretrained reads."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from transformers import AutoModelForCausalLM

from optimum_neuron.distributed import FSDP_FOLDER, WEIGHTS, consolidate
from optimum_neuron.errors import ArtifactError
from tests.trainer.conftest import raises

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(params=["fsdp", "shards"])
def sharded(request, tmp_path, llama):
    folder = tmp_path / "checkpoint-1"
    state = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
    if request.param == "fsdp":
        # As accelerate's save_fsdp_model writes it.
        dcp.save({"model": state}, checkpoint_id=str(folder / FSDP_FOLDER), no_dist=True)
    else:
        writer = HuggingFaceStorageWriter(path=str(folder), save_distributed=True, enable_consolidation=False)
        dcp.save(state, storage_writer=writer, no_dist=True)
    return folder


def test_folder_is_read_by_from_pretrained(sharded, tmp_path, llama):
    llama.config.save_pretrained(tmp_path / "base")
    written = consolidate(sharded, tmp_path / "joined", config=tmp_path / "base")
    assert written.loadable and written.num_tensors == len(llama.state_dict())
    require_same(AutoModelForCausalLM.from_pretrained(tmp_path / "joined"), llama)


def require_same(actual, expected):
    for name, tensor in expected.state_dict().items():
        assert torch.equal(actual.state_dict()[name], tensor)


def test_command(sharded, tmp_path, cli):
    output = cli("neuron", "consolidate", str(sharded), str(tmp_path / "joined"), "--json").json
    assert output["num_tensors"] > 0 and not output["loadable"]
    assert "pass --config" in cli("neuron", "consolidate", str(sharded), str(tmp_path / "joined")).stdout


def test_folder_without_weights(tmp_path):
    with raises(ArtifactError, folder=str(tmp_path)):
        consolidate(tmp_path)


@pytest.mark.parametrize("size", ["1MB", "20kB"])
def test_full_weights_are_copied(tmp_path, llama, size):
    llama.save_pretrained(tmp_path / "checkpoint-1", max_shard_size=size)
    written = consolidate(tmp_path / "checkpoint-1", tmp_path / "joined")
    assert written.loadable and [path.name for path in (tmp_path / "joined").glob("*.safetensors")] == [WEIGHTS]
    require_same(AutoModelForCausalLM.from_pretrained(tmp_path / "joined"), llama)
    assert consolidate(tmp_path / "joined").num_tensors == written.num_tensors


def test_adapter_is_written_to_optimum_neuron_folder(tmp_path, llama):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapter_model = peft.get_peft_model(copy.deepcopy(llama), config)
    adapter_model.save_pretrained(tmp_path / "checkpoint-1")
    folder = tmp_path / "checkpoint-1" / "adapter_default"
    assert consolidate(folder, folder).loadable
    require_same(peft.PeftModel.from_pretrained(copy.deepcopy(llama), folder), adapter_model)
