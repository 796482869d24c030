"""Names of `torch_xla` in scripts: each leads to an object, and scripts of the usual kinds run."""

from __future__ import annotations

import pytest
import torch

from tests.tree import ROOT
from tests.xla.programs import run

RESOLVE = """
import importlib, inspect
import torch.distributed as dist
import torch_xla
from optimum_neuron.errors import ModelError

dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)  # a backend without further imports
from optimum_neuron_sim_xla._names import NAMES
from tests.xla.published import PUBLISHED

for module, rows in NAMES.items():
    loaded = importlib.import_module(module)
    for name in rows:
        if name.isidentifier():
            getattr(loaded, name)

KINDS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
for module, text in PUBLISHED.items():
    loaded = importlib.import_module(module)
    for row in text.split(";"):
        name, has_parameters, wanted = row.strip().rstrip(")").partition("(")
        found = getattr(loaded, name)
        if type(found).__name__ == "_Absent":
            try:
                found()
            except ModelError as error:
                assert ". " in str(error), (module, name)  # the alternative
            continue
        taken = [KINDS.get(one.kind, "") + one.name for one in inspect.signature(found).parameters.values()]
        if has_parameters and taken != wanted.split():
            print(module, name, taken)
"""


def test_every_name_leads_to_an_object_with_the_published_parameters(tmp_path):
    assert run(RESOLVE, tmp_path, PYTHONPATH=str(ROOT)) == ""


LIBRARIES = """
import sys
import accelerate, transformers
from accelerate.utils import is_torch_xla_available as of_accelerate
from transformers.utils import is_torch_xla_available as of_transformers
answers = [of_accelerate(), of_transformers()]
assert accelerate.PartialState().device.type == "{device}" and ("torch_xla" in sys.modules) is answers[0]
print(*answers)
"""


@pytest.mark.full(days=4)
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


@pytest.mark.full(days=2)
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


@pytest.mark.full(days=2)
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


@pytest.mark.full(days=2)
def test_old_names_work_and_say_their_new_ones_once(tmp_path):
    assert run(OLD_NAMES, tmp_path).splitlines() == [
        "xrt_world_size world_size",
        "get_ordinal global_ordinal",
        "DeprecationWarning DeprecationWarning",
    ]


@pytest.mark.full(days=2)
def test_missing_feature_imports_and_raises_when_it_is_used(tmp_path):
    program = """
import torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
from torch_xla.experimental.custom_kernel import flash_attention
from optimum_neuron.errors import ModelError
unsupported = (
    *(lambda: xs.mark_sharding(None, None, None), lambda: xs.xla_distribute_tensor(None, None)),
    *(xr.use_spmd, XlaFullyShardedDataParallel, flash_attention),
)
for use in unsupported:
    try:
        use()
    except ModelError as error:
        print(*(word for word in ("torchrun", "init_device_mesh", "fully_shard", "NKI") if word in str(error)))
"""
    assert run(program, tmp_path).split() == ["torchrun", "init_device_mesh", "torchrun", "fully_shard", "NKI"]


ENDING = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from optimum_neuron.errors import CollectiveError, CoreBusyError

def first_alone(rank):
    if rank == 0:
        try:
            xm.all_reduce("sum", torch.ones(2, device="xla"))
        except CollectiveError as error:
            print(error.details["ranks"], flush=True)

def both(rank):
    print(xm.all_reduce("sum", torch.ones(2, device="xla")).tolist(), flush=True)

for function in (first_alone, both):
    xmp.spawn(function, start_method="fork")
print(torch.ones(1, device="xla").item())
try:
    xmp.spawn(both, start_method="fork")
except CoreBusyError:
    print("busy")
"""


@pytest.mark.full(days=4)
def test_rank_that_ends_before_it_exchanges_anything_is_an_error_in_the_other(tmp_path):
    lines = run(ENDING, tmp_path, NEURONCORE_NUM_DEVICES="2").splitlines()
    assert lines == ["[1]", "[2.0, 2.0]", "[2.0, 2.0]", "1.0", "busy"]


TRAINER = """
import copy, json, logging
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
model = BertForSequenceClassification(
    BertConfig(**sizes, max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
)
reference = copy.deepcopy(model)
row = {"input_ids": torch.arange(8), "attention_mask": torch.ones(8, dtype=torch.long), "labels": 1}
options = dict(max_steps=3, logging_steps=1, learning_rate=0.01, report_to=[], disable_tqdm=True, save_strategy="no")
trainer = Trainer(
    model=model, args=TrainingArguments("out", per_device_train_batch_size=2, **options), train_dataset=[row] * 8
)
trainer.train()
assert str(trainer.args.device) == "xla:0" and trainer.accelerator.distributed_type == "XLA"
ours = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

optimizer = torch.optim.AdamW(reference.train().parameters(), lr=0.01, weight_decay=0.0, fused=True)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 3)
batch = {name: torch.stack([torch.as_tensor(value)] * 2) for name, value in row.items()}
for loss in ours:
    expected = reference(**batch).loss
    assert abs(loss - expected.item()) < 1e-6, (loss, expected)
    expected.backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(len(ours))
"""


@pytest.mark.full(days=4)
def test_trainer_of_transformers_has_the_losses_of_the_cpu(tmp_path):
    assert run(TRAINER, tmp_path, OPTIMUM_NEURON_XLA="1").splitlines()[-1] == "3"
