"""Weights in shards become a folder that from_pretrained reads."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from transformers import AutoModelForCausalLM

from optimum_neuron.distributed.consolidate import FSDP_FOLDER, consolidate
from optimum_neuron.errors import ArtifactError

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


def test_the_folder_is_read_by_from_pretrained(sharded, tmp_path, llama):
    llama.config.save_pretrained(tmp_path / "base")
    written = consolidate(sharded, tmp_path / "joined", config=tmp_path / "base")
    assert written.loadable and written.num_tensors == len(llama.state_dict())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "joined")
    for name, tensor in llama.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


def test_the_command(sharded, tmp_path, cli):
    told = cli("neuron", "consolidate", str(sharded), str(tmp_path / "joined"), "--json").json
    assert told["num_tensors"] > 0 and not told["loadable"]
    assert "pass --config" in cli("neuron", "consolidate", str(sharded), str(tmp_path / "joined")).stdout


def test_what_has_no_shards(tmp_path, llama):
    with pytest.raises(ArtifactError, match=f"neither {FSDP_FOLDER}/ nor shard-"):
        consolidate(tmp_path)
    llama.save_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match="whole already"):
        consolidate(tmp_path)
