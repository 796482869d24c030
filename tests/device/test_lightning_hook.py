"""Lightning's `Trainer` and `Fabric` with accelerator="neuron": the CPU's losses, on the device."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from optimum_neuron.device.lightning_hook import accelerator_class, device_indices
from optimum_neuron.errors import ConfigError

PACKAGES = ["lightning.pytorch", "pytorch_lightning"]


def package(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason="pip install lightning pytorch-lightning")


def losses(pl: Any, accelerator: str, **options: Any) -> tuple[list[float], set[str], Any]:
    """Losses of a short training, the devices of its batches, and the trainer."""
    calls: list[float] = []
    devices = set()

    class Tiny(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            x, y = batch
            devices.add(x.device.type)
            result = self.layers(x)
            assert result.dtype == (torch.bfloat16 if options.get("precision") == "bf16-mixed" else torch.float32)
            loss = (result.float() - y).square().mean()
            calls.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(24, 6, generator=generator)
    data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(accelerator=accelerator, max_epochs=2, enable_model_summary=False, **quiet, **options)
        trainer.fit(Tiny(), torch.utils.data.DataLoader(data, batch_size=8))
    return calls, devices, trainer


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", PACKAGES)
def test_trainer_losses_match_cpu(name, precision):
    pl = package(name)
    result, devices, trainer = losses(pl, "neuron", precision=precision)
    expected, _, _ = losses(pl, "cpu", precision=precision)
    assert devices == {"neuron"} and trainer.strategy.root_device == torch.device("neuron", 0)
    assert len(result) == 6 and result[-1] < result[0]
    assert result == pytest.approx(expected, rel=1e-5 if precision == "32-true" else 2e-2)


@pytest.mark.parametrize("name", PACKAGES)
def test_devices_choose_core(name, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    pl = package(name)
    assert "neuron" in pl.accelerators.AcceleratorRegistry.available_accelerators()
    assert pl.Trainer(accelerator="neuron", devices=[1], logger=False).strategy.root_device.index == 1
    several = pl.Trainer(accelerator="neuron", devices=2, logger=False).strategy
    assert several.parallel_devices == [torch.device("neuron", 0), torch.device("neuron", 1)]
    assert several._process_group_backend == "neuron" and isinstance(several, pl.strategies.DDPStrategy)
    assert several.determine_ddp_device_ids() is None
    with pytest.raises(ConfigError):
        pl.Trainer(accelerator="neuron", devices=99, logger=False)


@pytest.mark.parametrize("name", PACKAGES)
def test_fabric_puts_modules_on_device(name):
    fabric = package("lightning.fabric" if name == "lightning.pytorch" else "lightning_fabric")
    run = fabric.Fabric(accelerator="neuron", precision="bf16-mixed")
    module = run.setup(torch.nn.Linear(3, 2))
    with run.autocast():
        assert module(torch.ones(1, 3, device=run.device)).device.type == "neuron"
        assert torch.mm(*torch.ones(2, 3, 3, device=run.device)).dtype == torch.bfloat16


def test_accelerator_needs_no_lightning():
    accelerator = accelerator_class(object)
    assert accelerator.is_available() and accelerator.auto_device_count() == 1
    assert accelerator.get_parallel_devices([0]) == [torch.device("neuron", 0)]
    stats = accelerator().get_device_stats(torch.device("neuron", 0))
    assert stats == {"allocated_bytes": torch.neuron.memory_allocated(0)}


def test_valid_device_arguments(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    for devices, indices in ((2, [0, 1]), ("2", [0, 1]), ("0,3", [0, 3]), ([4], [4]), (-1, list(range(12)))):
        assert device_indices(devices) == indices
    for devices in (0, 13, [], [0, 0], "x", None, [12], "1,", -2):
        with pytest.raises(ConfigError) as excinfo:
            device_indices(devices)
        assert excinfo.value.details == {"devices": devices, "count": 12}
