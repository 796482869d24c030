"""Names of `torch_xla` in scripts: each leads to an object, and scripts of the usual kinds run."""

from __future__ import annotations

import pytest
import torch

from tests.xla.programs import run

RESOLVE = """
import importlib
from optimum_neuron_sim_xla._names import NAMES
for module, rows in NAMES.items():
    loaded = importlib.import_module(module)
    for name in filter(None, rows):
        getattr(loaded, name)
print(len(NAMES), "modules")
"""


def test_every_name_leads_to_an_object(tmp_path):
    assert "modules" in run(RESOLVE, tmp_path)


LIBRARIES = """
import sys
import accelerate, transformers
from accelerate.utils import is_torch_xla_available as of_accelerate
from transformers.utils import is_torch_xla_available as of_transformers
answers = [of_accelerate(), of_transformers()]
assert accelerate.PartialState().device.type == "{device}" and ("torch_xla" in sys.modules) is answers[0]
print(*answers)
"""


@pytest.mark.parametrize(
    ("imports", "variables", "device", "answers"),
    [
        ("", {}, "neuron", "False False"),
        ("import torch_xla", {}, "xla", "True True"),
        ("", {"PJRT_DEVICE": "NEURON"}, "xla", "True True"),
        ("import transformers; transformers.utils.is_torch_xla_available(); import torch_xla", {}, "xla", "True True"),
    ],
    ids=["not-asked", "script", "variable", "script-after-transformers"],
)
def test_transformers_and_accelerate_agree_with_the_script(tmp_path, imports, variables, device, answers):
    program = f"{imports}\n{LIBRARIES.format(device=device)}"
    assert run(program, tmp_path, **variables).strip() == answers


def test_script_that_imports_accelerate_first_is_warned(tmp_path):
    program = """
import warnings
import accelerate
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", UserWarning)
    import torch_xla
from transformers.utils import is_torch_xla_available
print([item.category.__name__ for item in caught if "accelerate" in str(item.message)], is_torch_xla_available())
"""
    assert run(program, tmp_path).strip() == "['UserWarning'] False"


TRAINING = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
import torch_xla.utils.serialization as xser

torch.manual_seed(0)
device = xm.xla_device()
assert str(device) == "xla:0" and xm.xla_device_hw(device) == xr.device_type() == "NEURON"
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
batches = [(torch.randn(3, 4), torch.randn(3, 2)) for _ in range(4)]
torch.save([model.state_dict(), batches], "start.pt")
optimizer = torch.optim.SGD(model.to("xla").parameters(), lr=0.1, momentum=0.9)
loader = pl.MpDeviceLoader(batches, device)
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    xm.add_step_closure(lambda value: xm.master_print(value.item()), (loss,))
assert len(loader) == 4 and met.counter_value("MarkStep") == 5
xm.save(model.state_dict(), "end.pt")
xser.save({"model": model.state_dict(), "epoch": 3}, "parts.pt")
read = xser.load("parts.pt")
assert read["epoch"] == 3
assert all(torch.equal(one, model.state_dict()[name].cpu()) for name, one in read["model"].items())
assert xr.world_size() == 1 and xr.global_ordinal() == 0 and xm.is_master_ordinal(local=False)
assert xm.get_memory_info()["bytes_used"] > 0
"""


def test_training_script_has_the_losses_and_files_of_the_cpu(tmp_path):
    losses = run(TRAINING, tmp_path).split()
    state, batches = torch.load(tmp_path / "start.pt")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model.load_state_dict(state)
    optimizer, expected = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert [float(loss) for loss in losses] == expected
    saved = torch.load(tmp_path / "end.pt")
    assert all(torch.equal(tensor, saved[name]) for name, tensor in model.state_dict().items())
    assert sorted(path.name for path in (tmp_path / "parts.pt.tensors").iterdir()) == [
        f"tensor_{number}.pt" for number in range(4)
    ]


OLD_NAMES = """
import logging, warnings
import torch_xla.core.xla_model as xm

class Kept(logging.Handler):
    def emit(self, record):
        print(record.args[0].rpartition(".")[2], record.args[2].rpartition(".")[2])

logging.getLogger("optimum_neuron").addHandler(Kept())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        assert (xm.xrt_world_size(), xm.get_ordinal(), xm.get_local_ordinal()) == (1, 0, 0)
        xm.mark_step()
        xm.xla_device()
print(*(item.category.__name__ for item in caught))
"""


def test_old_names_work_and_say_their_new_ones_once(tmp_path):
    assert run(OLD_NAMES, tmp_path).splitlines() == [
        "xrt_world_size world_size",
        "get_ordinal global_ordinal",
        "DeprecationWarning DeprecationWarning",
    ]


def test_missing_feature_imports_and_raises_when_it_is_used(tmp_path):
    program = """
import torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
from optimum_neuron.errors import ModelError
for use in (lambda: xs.mark_sharding(None, None, None), xr.use_spmd):
    try:
        use()
    except ModelError as error:
        print("torchrun" in str(error))
"""
    assert run(program, tmp_path).split() == ["True", "True"]
