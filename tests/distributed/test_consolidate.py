"""The weights of a checkpoint become a folder that from_pretrained reads."""

from __future__ import annotations

import copy
import json
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from transformers import AutoModelForCausalLM

from optimum_neuron.distributed import consolidate, read_joined
from optimum_neuron.errors import ArtifactError
from tests.raising import raises

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(params=["fsdp", "shards"])
def sharded(request, tmp_path, llama):
    folder = tmp_path / "checkpoint-1"
    state = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
    if request.param == "fsdp":
        # As accelerate's save_fsdp_model writes it.
        dcp.save({"model": state}, checkpoint_id=str(folder / "pytorch_model_fsdp_0"), no_dist=True)
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
    assert written.loadable and [path.name for path in (tmp_path / "joined").glob("*.safetensors")] == [
        "model.safetensors"
    ]
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
    (folder / "adapter_model.safetensors").unlink()  # a trainer leaves the configuration there
    assert consolidate(folder, tmp_path / "joined").loadable
    assert read_joined(folder).keys() == read_joined(tmp_path / "joined").keys() != set()


class TensorReference:
    """torch_xla's class, as its serialization pickles it."""

    __module__ = "torch_xla.utils.serialization"

    def __init__(self, tid):
        self.tid = tid


def save_in_parallel(folder, state, *, is_referenced):
    """Write two stages of two ranks, as Optimum Neuron 0.4 does: gate and up fused, norms on both ranks."""
    (folder / "model").mkdir(parents=True)
    for stage in range(2):
        own = {
            name: value for name, value in state.items() if (".layers.1." in name or "lm_head" in name) == bool(stage)
        }
        parameters, specs, ranks = {}, [], [{}, {}]
        for name, value in own.items():
            if "gate_proj" in name:
                path = name.removesuffix(".gate_proj.weight")
                both = [value, own[name.replace("gate_proj", "up_proj")]]
                spec = {"fused_linear_name": "gate_up_proj", "linear_names": ["gate_proj", "up_proj"], "bias": False}
                spec |= {"fuse_axis": 0, "original_dims": [len(value)] * 2, "tp_size": 2, "peft_type": None}
                specs.append({"module_fully_qualified_name": path, "specs": [["FusedLinearsSpec", spec]]})
                name, dim = f"{path}.gate_up_proj.weight", 0
                pieces = [torch.cat(halves) for halves in zip(*(each.chunk(2) for each in both), strict=True)]
            elif "up_proj" in name:
                continue
            else:
                dim = None if "norm" in name else 1 if "o_proj" in name or "down_proj" in name else 0
                pieces = [value, value] if dim is None else value.chunk(2, dim)
            parameters[name] = {"tensor_model_parallel": dim is not None}
            if dim is not None:
                parameters[name] |= {"partition_dim": dim, "partition_stride": 1, "num_partitions": 2}
            for rank, piece in zip(ranks, pieces, strict=True):
                rank[name] = piece.clone()
        metadata = {"parameters": parameters, "model_weight_transformation_specs": specs}
        (folder / f"mp_metadata_pp_rank_{stage}.json").write_text(json.dumps(metadata))
        for index, rank in enumerate(ranks):
            path = folder / "model" / f"dp_rank_00_tp_rank_{index:02}_pp_rank_{stage:02}.pt"
            if is_referenced:
                tensors = path.with_name(f"{path.name}.tensors")
                tensors.mkdir()
                for number, piece in enumerate(rank.values()):
                    torch.save(piece, tensors / f"tensor_{number}.pt")
                rank = {name: TensorReference(number) for number, name in enumerate(rank)}
            torch.save(rank, path)


@pytest.mark.parametrize("is_referenced", [False, True])
def test_checkpoint_of_optimum_neuron_is_joined(is_referenced, tmp_path, llama, monkeypatch):
    packages = ("torch_xla", "torch_xla.utils", "torch_xla.utils.serialization")
    with monkeypatch.context() as context:
        for name in packages:
            context.setitem(sys.modules, name, types.SimpleNamespace(TensorReference=TensorReference))
        save_in_parallel(tmp_path / "out" / "shards", llama.state_dict(), is_referenced=is_referenced)
    llama.config.save_pretrained(tmp_path / "out")
    written = consolidate(tmp_path / "out", tmp_path / "joined")
    assert written.loadable and written.source == str(tmp_path / "out" / "shards")
    require_same(AutoModelForCausalLM.from_pretrained(tmp_path / "joined"), llama)
    (tmp_path / "out" / "shards" / "model" / "dp_rank_00_tp_rank_01_pp_rank_01.pt").unlink()
    with raises(ArtifactError, stage=1, ranks=[1]):
        consolidate(tmp_path / "out", tmp_path / "joined")


def test_other_layers_of_optimum_neuron_are_refused(tmp_path, llama):
    save_in_parallel(tmp_path / "shards", llama.state_dict(), is_referenced=False)
    path = tmp_path / "shards" / "mp_metadata_pp_rank_0.json"
    path.write_text(path.read_text().replace("FusedLinearsSpec", "GQAQKVColumnParallelLinearSpec"))
    with pytest.raises(ArtifactError) as error:
        consolidate(tmp_path)
    assert error.value.details["kind"] == "GQAQKVColumnParallelLinearSpec"


def test_folder_of_a_run_stands_for_its_last_checkpoint(tmp_path):
    run = tmp_path / "run"
    for step in (9, 10):
        (run / f"checkpoint-{step}").mkdir(parents=True)
        save_file({"a": torch.full((2,), step)}, run / f"checkpoint-{step}" / "adapter_model.safetensors")
        (run / f"checkpoint-{step}" / "adapter_config.json").write_text("{}")
    written = consolidate(run, run / "adapter_default")
    assert load_file(run / "adapter_default" / "adapter_model.safetensors")["a"].tolist() == [10, 10]
    assert written.loadable and Path(written.source).parent.name == "checkpoint-10"
    assert Path(consolidate(run).path).parent.name == "checkpoint-10"
