"""Files of checkpoints: a process that ends while it writes leaves the older file; torch reads them."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from optimum_neuron.errors import ArtifactError, ConfigError
from optimum_neuron.neuronx_distributed import attributes, checkpoint, checkpoint_writer, checkpointing, parallel_state
from optimum_neuron.xla import serialization

KILLED = """
import os, signal, sys
from optimum_neuron.neuronx_distributed import checkpointing
from optimum_neuron.xla import serialization

class Ending:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)

data = {"large": list(range(100000)), "last": Ending()}
if sys.argv[2] == "xm":
    serialization.save(data, sys.argv[1] + "/whole.pt")
checkpointing.save(data, sys.argv[1], save_xser=sys.argv[2] == "xser")
"""


def _kill(folder: Path, kind: str) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), kind]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode < 0


@pytest.mark.parametrize("kind", ["whole", "xser"])
def test_killed_while_writing(tmp_path: Path, kind: str) -> None:
    by_tensor = kind == "xser"
    checkpointing.save({"model": {"weight": torch.arange(3)}}, tmp_path, save_xser=by_tensor)
    _kill(tmp_path, kind)
    held = checkpointing.load(tmp_path, load_xser=by_tensor)
    assert torch.equal(held["model"]["weight"], torch.arange(3))
    if not by_tensor:
        file = tmp_path / "tp_rank_00_pp_rank_00" / "checkpoint.pt"
        assert torch.equal(torch.load(file, weights_only=True)["model"]["weight"], torch.arange(3))


def test_killed_in_xm_save(tmp_path: Path) -> None:
    file, link = tmp_path / "whole.pt", tmp_path / "link.pt"
    link.symlink_to(file)
    serialization.save(torch.arange(3), link)
    assert link.is_symlink() and torch.equal(torch.load(file), torch.arange(3))
    _kill(tmp_path, "xm")
    assert torch.equal(torch.load(file), torch.arange(3))
    with pytest.raises(ArtifactError) as error:
        serialization.save(torch.arange(3), tmp_path / "absent" / "whole.pt")
    assert error.value.details["path"] == str(tmp_path / "absent" / "whole.pt")
    serialization.save(torch.arange(3), "/dev/null")
    assert not Path("/dev/null").is_file()


def test_names_that_are_no_folders() -> None:
    for call in (
        lambda: checkpointing.save({}, "s3://bucket/run"),
        lambda: checkpointing.load("s3://bucket/run"),
        lambda: checkpoint.has_checkpoint("s3://bucket/run"),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert error.value.details["path"].startswith("s3://bucket")


def test_saving_again_leaves_no_files_of_other_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_require_ranks", lambda *_: None)
    monkeypatch.setattr(parallel_state.Axis, "size", lambda self: 1)
    monkeypatch.setattr(parallel_state.Axis, "rank", lambda self: 0)
    optim = tmp_path / "a" / "optim"
    optim.mkdir(parents=True)
    (optim / "dp_rank_01_tp_rank_00_pp_rank_00.pt").write_bytes(b"of more ranks")
    checkpoint.save_checkpoint(tmp_path, "a", model={}, optimizer={"state": {}})
    assert [file.name for file in optim.iterdir()] == ["dp_rank_00_tp_rank_00_pp_rank_00.pt"]
    with pytest.raises(ConfigError):
        checkpoint.save_checkpoint(tmp_path, "a", num_kept_ckpts=0)


def test_a_checkpoint_that_is_not_complete_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_require_ranks", lambda *_: None)
    monkeypatch.setattr(parallel_state.Axis, "size", lambda self: 1)
    monkeypatch.setattr(parallel_state.Axis, "rank", lambda self: 0)
    model: dict[str, torch.Tensor] = {}
    checkpoint.save_checkpoint(tmp_path, "a", model={"weight": torch.arange(3)})
    checkpoint.load_checkpoint(tmp_path, "a", model=model)
    (tmp_path / "a" / "done").unlink()
    for tag in (None, "a", "b"):
        with pytest.raises(ConfigError) as error:
            checkpoint.load_checkpoint(tmp_path, tag, model=model)
        assert error.value.details["tag"] == tag
    (tmp_path / "a" / "checkpoint").unlink()  # converters write no marks
    checkpoint.load_checkpoint(tmp_path, "a", model=model)
    assert model["weight"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("by_tensor", [False, True])
def test_a_file_with_another_bit_is_refused(tmp_path: Path, by_tensor: bool) -> None:
    """torch.load does not compare the sums that torch.save writes: one other bit would be another weight."""
    weight = torch.arange(1000.0)
    checkpointing.save({"model": {"weight": weight}}, tmp_path, save_xser=by_tensor)
    name = "tp_rank_00_pp_rank_00"
    file = tmp_path / name / "checkpoint.pt"
    if by_tensor:  # tensors of the CPU are in the file itself
        file = tmp_path / name
    content = bytearray(file.read_bytes())
    for place in (content.index(weight[500].numpy().tobytes()), len(content) - 60):  # a weight, the directory
        changed = content.copy()
        changed[place] ^= 0x40
        file.write_bytes(changed)
        with pytest.raises(ArtifactError) as error:
            checkpointing.load(tmp_path, load_xser=by_tensor)
        assert error.value.details["path"] == str(file)


def test_ranks_that_nobody_hears_any_more_leave_a_checkpoint_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = checkpoint_writer.Writer()
    with monkeypatch.context() as patch:
        patch.setattr(dist, "is_initialized", lambda: True)
        patch.setattr(dist, "get_world_size", lambda: 2)
        writer.begin(
            tmp_path / "a", [({"x": torch.ones(1)}, tmp_path / "a" / "x.pt", False)], num_kept=None, waits=False
        )
    with pytest.raises(ConfigError) as error:
        writer.finish()
    assert error.value.details["path"] == str(tmp_path / "a")
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["x.pt"]


def test_ranks_of_experts_share_files_of_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NxD writes tensors that are not of experts for the first rank alone, and reads their shapes first."""
    for name in ("torch_xla", "torch_xla.utils", "torch_xla.utils.serialization"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["torch_xla.utils.serialization"].TensorReference = serialization.TensorReference
    monkeypatch.setattr(serialization, "is_xla_tensor", lambda _: True)
    model = nn.ModuleDict({"plain": nn.Linear(2, 3, bias=False), "expert": nn.Linear(3, 2, bias=False)})
    attributes.set_experts(model["expert"].weight, 2, 1)
    monkeypatch.setattr(parallel_state.Axis, "size", lambda self: 2)
    monkeypatch.setattr(parallel_state.Axis, "rank", lambda self: 1)
    files = [tmp_path / f"dp_rank_00_ep_rank_{rank:02d}_tp_rank_00_pp_rank_00.pt" for rank in (0, 1)]
    for file in files:
        checkpointing.write_item(checkpoint._states(model), file, by_tensor=True)
    facts = torch.load(f"{files[1]}.info.pt")
    assert [one["expert_model_parallel"] for one in facts.values()] == [False, True]
    assert [one["shape"] for one in facts.values()] == [torch.Size([3, 2]), torch.Size([2, 3])]
    Path(serialization.tensor_file(f"{files[1]}.tensors", 0)).unlink()
    read: dict[str, torch.Tensor] = {}
    checkpoint._load(read, files[1])
    assert torch.equal(read["plain.weight"], model["plain"].weight)
    Path(serialization.tensor_file(f"{files[1]}.tensors", 1)).unlink()
    with pytest.raises(ArtifactError):  # the experts of the first rank are others
        checkpoint._load(read, files[1])
